"""Decides several requests with one act of a reviewer. Each is checked again, and decided or refused for itself.

A batch has no way of its own to decide: `decide` decides each request, with the digest that the reviewer saw of it.
It is no transaction: a worker may start the first call before the last decision, as if the reviewer had clicked fast.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from approvals import clock
from approvals.decisions import checks
from approvals.decisions.decide import decide
from approvals.decisions.undo import undo
from approvals.errors import NotFound, NotTogether
from approvals.reads import approval_views
from approvals.reads.approval_views import ApprovalView
from approvals.rules import roles
from runtime.control.access import validate_text
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.limits import MAX_REASON
from runtime.core.values.verdicts import GATES, VERDICTS
from runtime.errors import InvalidInput, RequestError
from runtime.ports.access import Actor

MAX_ITEMS = 50
COUNTED_ABOVE = 20  # items: above it, the reviewer repeats their number
IN_BATCH = (Verdict.APPROVE, Verdict.DENY)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """What became of one request: its state now, None if the actor cannot read it, and why nothing was done."""

    approval_id: UUID
    approval: ApprovalView | None
    problem: RequestError | None = None


def left_out(approval: ApprovalView, verdict: Verdict) -> RequestError | None:
    """Say why this request does not get this verdict together with others; None if it may."""
    if approval.status != "pending":
        by = f" by {approval.decided_by}" if approval.decided_by else ""
        return NotTogether(f"It was already {approval.status}{by}.")
    if approval.expires_at is not None and approval.expires_at <= clock.now():
        return NotTogether("It has expired.")
    if approval.denial is not None:
        return approval.denial
    if alone := GATES[GateKind(approval.kind)].alone:
        return NotTogether(alone)
    if verdict is not Verdict.APPROVE:
        return None
    if approval.confirm is not None or approval.risk not in roles.UNDOABLE:
        return NotTogether(
            "High risk: rights, money, or an effect that cannot be undone. Approve it on its own page."
        )
    if approval.quorum > 1:
        return NotTogether(f"{approval.quorum} people must approve it, each on its own page.")
    if isinstance(approval.preview, dict) and "before" in approval.preview:
        return NotTogether(
            "Its consequences changed after an earlier approval. Approve it on its own page."
        )
    return None


def decide_each(
    *,
    items: Mapping[UUID, object],
    verdict: object,
    reason: object,
    count: object,
    actor: Actor,
) -> tuple[BatchOutcome, ...]:
    """Approve or deny each request, with the digest that the reviewer saw of it, and say what became of each.

    Above COUNTED_ABOVE items, `count` repeats their number. An approval is for calls of one tool. Nothing is decided
    if this raises InvalidInput naming `item`, `verdict`, `count` or `reason`.
    """
    if verdict not in IN_BATCH:
        raise InvalidInput("verdict", f"must be one of {', '.join(IN_BATCH)}")
    decided_verdict = Verdict(str(verdict))
    _check_number(items)
    rule = VERDICTS[decided_verdict]
    needed = f"is required to {rule.verb}" if rule.needs_reason else ""
    reason_text = validate_text(
        "reason", "" if reason is None else reason, MAX_REASON, required=needed
    )
    if len(items) > COUNTED_ABOVE and str(count).strip() != str(len(items)):
        raise InvalidInput(
            "count",
            f"must be {len(items)}, the number of ticked requests: more than {COUNTED_ABOVE} need it",
        )
    by_id = {view.id: view for view in approval_views.several(list(items), actor=actor)}
    if decided_verdict is Verdict.APPROVE:
        approved = [row for row in by_id.values() if left_out(row, decided_verdict) is None]
        if len({kind_of(row) for row in approved}) > 1:
            problem = "must be calls of one tool by one agent to be approved together"
            raise InvalidInput("item", problem)

    def act(approval: ApprovalView) -> ApprovalView:
        return decide(
            approval_id=approval.id,
            verdict=decided_verdict,
            digest=items[approval.id],
            reason=reason_text,
            actor=actor,
            channel="batch",
        )

    return tuple(
        _each(list(items), by_id, lambda approval: left_out(approval, decided_verdict), act, actor)
    )


def undo_each(*, items: Sequence[UUID], actor: Actor) -> tuple[BatchOutcome, ...]:
    """Undo the actor's own decision on each request whose undo window is open. Raises InvalidInput naming `item`."""
    _check_number(items)
    by_id = {view.id: view for view in approval_views.several(items, actor=actor)}
    return tuple(
        _each(
            items,
            by_id,
            lambda approval: None,
            lambda approval: undo(approval_id=approval.id, actor=actor),
            actor,
        )
    )


def kind_of(approval: ApprovalView) -> tuple[str, ...]:
    """Name the kind of a call: its agent and its tool."""
    return tuple(approval.path[-2:])


def _check_number(items: Mapping[UUID, object] | Sequence[UUID]) -> None:
    if not 1 <= len(items) <= MAX_ITEMS:
        raise InvalidInput("item", f"must be 1 to {MAX_ITEMS} requests, and {len(items)} are given")


def _each(
    items: Sequence[UUID],
    by_id: Mapping[UUID, ApprovalView],
    refused: Callable[[ApprovalView], RequestError | None],
    act: Callable[[ApprovalView], ApprovalView],
    actor: Actor,
) -> Iterator[BatchOutcome]:
    """Act on one request after the other. An error of one does not stop the others."""
    for approval_id in items:
        approval = by_id.get(approval_id)
        if approval is None:
            checks.record_refusal(actor, NotFound(), pk=approval_id)
            yield BatchOutcome(approval_id=approval_id, approval=None, problem=NotFound())
            continue
        problem = refused(approval)
        if problem is not None:
            checks.record_refusal(actor, problem, pk=approval_id)
        else:
            try:
                approval = act(approval)
            except RequestError as exc:
                problem = exc
        yield BatchOutcome(approval_id=approval_id, approval=approval, problem=problem)
