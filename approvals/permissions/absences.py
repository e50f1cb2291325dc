"""Tells from signed rows who is away, and who stands in for them. A deputy's own deputy gets nothing by it."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from approvals.models import Absence
from approvals.permissions import signatures

LONGEST: Final = timedelta(days=60, hours=1)  # days of a zone whose clock may change meanwhile
# People of whom each absence with this deputy ended longer ago are not read: a vote in their place counts no more.
READ_FOR: Final = timedelta(days=90)

Act = Absence.AbsenceChange


def current(
    rows: Collection[tuple[Absence, str]], person: str, deputy: str, at: datetime
) -> Absence | None:
    """Return the row by which `deputy` stands in for `person` on some days; None if there is none at this time.

    `rows` are the acts of one person, each with its signed text. The last act up to that time counts, so an act that
    does not verify ends the absence.
    """
    until_then = [(row, text) for row, text in rows if row.at <= at]
    if not until_then:
        return None
    row, text = max(until_then, key=lambda one: one[0].seq)
    holds = (
        signatures.is_signed(row, text)
        and row.act == Act.SET
        and (row.username, row.deputy) == (person, deputy)
        and row.ends - row.starts <= LONGEST
        and person != deputy
    )
    return row if holds else None
