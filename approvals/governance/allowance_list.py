"""Reads allowances for people: their state, what the reader may do, and their uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from approvals import clock
from approvals.governance import allowance_changes, allowances
from approvals.governance.allowances import Allowance, State
from approvals.models import AllowanceAct, Approval
from approvals.reads.approval_views import to_view
from approvals.rights import approval_rights, principals
from approvals.rights.principals import Principal
from approvals.rules import allowance_terms
from runtime.ports.access import Actor

MAX_USES = 100  # the newest that a page lists


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceRow:
    """An allowance for one reader, with its limits in words."""

    allowance: Allowance
    state: State
    limits: tuple[tuple[str, str], ...]
    may_confirm: bool
    may_revoke: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One use. `request` is the request of the call, None if the reader may not read it."""

    number: int
    at: datetime
    approval_id: UUID | None
    sentence: str
    requester: str


def rows(actor: Actor) -> tuple[tuple[AllowanceRow, ...], tuple[str, ...]]:
    """Return the newest allowances, and why others do not verify. The caller checked that the actor may read them."""
    newest, broken = allowances.newest()
    return _rows(newest, principals.principal_of(actor)), broken


def read_with_uses(allowance: UUID, actor: Actor) -> tuple[AllowanceRow, tuple[Use, ...]]:
    """Return one allowance with its newest uses. Raises UnknownAllowance, AllowanceRefused.

    The request of a use shows the call, if the reader may read it.
    """
    stored = allowance_changes.readable(allowance, actor)
    principal = principals.principal_of(actor)
    (row,) = _rows([stored], principal)
    acts = AllowanceAct.objects.filter(allowance=stored.id, act=allowances.Act.USED)
    newest = list(acts.order_by("-seq")[:MAX_USES])
    approvals_by_id = Approval.objects.in_bulk([act.approval for act in newest])
    uses = []
    for act in newest:
        approval = approvals_by_id.get(act.approval)
        if approval is None or not approval_rights.reads(principal, approval):
            approval = None
        uses.append(
            Use(
                number=act.seq - allowances.FIRST_USE + 1,
                at=act.at,
                approval_id=approval.id if approval else None,
                sentence=to_view(approval, principal).sentence if approval else "",
                requester=approval.requester if approval else "",
            )
        )
    return row, tuple(uses)


def _rows(stored: Sequence[Allowance], principal: Principal | None) -> tuple[AllowanceRow, ...]:
    at = clock.now()
    waiting = [item.terms.request for item in stored if item.state(at) == "proposed"]
    sources = Approval.objects.in_bulk(waiting) if waiting else {}
    return tuple(
        AllowanceRow(
            allowance=item,
            state=item.state(at),
            limits=tuple(allowance_terms.describe(item.terms.limits)),
            may_confirm=allowance_changes.could_confirm(
                principal, item, sources.get(UUID(item.terms.request))
            ),
            may_revoke=item.state(at) in ("proposed", "in force")
            and allowance_changes.may_revoke(principal, item),
        )
        for item in stored
    )
