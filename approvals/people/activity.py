"""Lists the changes of a person's rights, from the signed rows that are never changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from approvals.models import Assignment
from approvals.signed import rows as signed_rows

LIMIT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RightChange:
    """One change of a group or password. `by` None is the command line. A row that `is_signed` is genuine."""

    what: str
    act: str
    by: str | None
    at: datetime
    is_signed: bool

    @property
    def label(self) -> str:
        """The act as a verb."""
        return _LABELS.get(self.act, self.act)


_LABELS: Mapping[str, str] = {
    Assignment.AssignmentChange.GIVEN: "given",
    Assignment.AssignmentChange.CONFIRMED: "confirmed",
    Assignment.AssignmentChange.CHANGED: "chosen",
    Assignment.AssignmentChange.ENDED: "taken away",
}


def right_changes(username: str) -> tuple[RightChange, ...]:
    """Return the last changes of the rights that a person has or had, the latest first."""
    rows = Assignment.objects.filter(person__username=username).order_by("-at", "-seq", "what")
    return tuple(
        RightChange(
            what=row.what, act=row.act, by=row.by, at=row.at, is_signed=signed_rows.is_valid(row)
        )
        for row in rows[:LIMIT]
    )
