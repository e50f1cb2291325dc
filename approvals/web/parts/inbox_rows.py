"""The rows of the inbox's list: those that come first, groups, and folds of rows with the same subtitle."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from approvals.reads import inbox, usual
from approvals.reads.approval_views import ApprovalView
from approvals.reads.orders import HeadedRows, Order
from approvals.rights.principals import Principal

FIRST = "High risk with an unusual value"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Consecutive rows of one path and one requester, whose subtitle is shown once."""

    path: tuple[str, ...]
    requester: str
    items: tuple[ApprovalView, ...]

    @property
    def is_folded(self) -> bool:
        """Whether there is more than one row."""
        return len(self.items) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a page: `items` in the order of the list, `first` those that come before all, of any later page too.

    `same` says that an open page has all of them already; then `odd` is empty.
    """

    items: tuple[ApprovalView, ...]
    odd: usual.OdditiesByApproval
    first: tuple[ApprovalView, ...] = ()
    same: bool = False

    @property
    def all(self) -> tuple[ApprovalView, ...]:
        """The rows, each once."""
        here = {approval.id for approval in self.items}
        return (*(approval for approval in self.first if approval.id not in here), *self.items)

    def groups(self, order: Order) -> list[tuple[str, int, list[RowGroup]]]:
        """Return the title of each group, the number of its rows, and its rows in folds; nothing of the `same` rows."""
        if self.same:
            return []
        first = {approval.id for approval in self.first}
        groups = order.groups([approval for approval in self.items if approval.id not in first])
        if self.first:
            groups.insert(0, HeadedRows(title=FIRST, items=self.first))
        return [(group.title, len(group.items), _folds(group.items)) for group in groups]


def rows(
    principal: Principal | None,
    items: tuple[ApprovalView, ...],
    risky: Collection[ApprovalView],
    known: Collection[UUID],
    *,
    leads: bool,
    same: bool,
) -> Rows:
    """Find the odd values of a page, and the rows that come first if it `leads` the whole list.

    `risky` are calls at high risk of all pages, `same` says that an open page knows the items of this one.
    """
    here = {approval.id for approval in items}
    others = [approval for approval in risky if approval.id not in here]
    if same:
        new = [approval for approval in others if approval.id not in known]
        if not inbox.pick_important(new, usual.of_requests(new, principal)):
            shown = tuple(approval for approval in others if approval.id in known)
            return Rows(items=items, odd=usual.of_requests((), principal), first=shown, same=True)
    odd = usual.of_requests((*items, *others), principal)
    first = inbox.pick_important((*items, *others), odd) if leads else ()
    return Rows(items=items, odd=odd, first=first)


def _folds(items: Sequence[ApprovalView]) -> list[RowGroup]:
    runs_of = groupby(items, key=lambda approval: (approval.path, approval.requester))
    return [RowGroup(path=path, requester=by, items=tuple(same)) for (path, by), same in runs_of]
