"""A run's journal as people's pages read it: every entry in order, with those that cannot be read as None.

Nothing is verified here: a page must show whatever is stored, above all of a run that is quarantined.
"""

from dataclasses import dataclass
from uuid import UUID

from runtime.core.documents.codec import decode_entry
from runtime.core.errors import CoreError
from runtime.core.machine.replay import Entry
from runtime.models import JournalEntry
from runtime.queries import time_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """One row of the journal; `mac` is that of its exact bytes, `entry` None if they cannot be read."""

    position: int
    entry: Entry | None
    mac: str


def read(run: UUID, *, after: int = 0, until: int | None = None) -> tuple[JournalLine, ...]:
    """The lines after position `after`, up to `until` or all. The caller has checked that the run may be read."""
    rows = JournalEntry.objects.filter(run_id=run, position__gt=after).order_by("position")
    if until is not None:
        rows = rows.filter(position__lte=until)
    return tuple(
        _line(position, body, mac)
        for position, body, mac in rows.values_list("position", "body", "mac")
    )


def _line(position: int, body: str, mac: str) -> JournalLine:
    time_limits.check()
    return JournalLine(position=position, entry=decoded(body), mac=mac)


def decoded(body: str) -> Entry | None:
    """Decode an entry; return None if it cannot be read."""
    try:
        return decode_entry(body)
    except (CoreError, RecursionError):
        return None
