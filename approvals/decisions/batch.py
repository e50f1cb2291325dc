"""Decides several requests with one act: those that a reviewer ticked, or the version gates of a change of an agent.

A batch has no way of its own to decide: `decide` checks and decides each request, with the digest that the reviewer
saw of it. It is no transaction: a worker may start the first call before the last decision, as if the reviewer had
clicked fast.

That all waiting runs of a change continue is also signed for the pair of versions. A run that this admin may not decide
stays. Runs that reach the same change later continue by the signed decision, until an admin withdraws it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

import psycopg
from django.db import OperationalError

from approvals import clock
from approvals.decisions import checks
from approvals.decisions.decide import decide, take_back, undo
from approvals.errors import ApprovalError, NotFound, NotTogether
from approvals.governance import version_changes
from approvals.models import VersionDecision, VersionWithdrawal
from approvals.reads import approval_views
from approvals.reads.approval_views import ApprovalView
from approvals.rights import principals
from approvals.rules import policy
from approvals.signed import audit
from approvals.signed import rows as signed_rows
from runtime.control.user_actions import validate_reason
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.json_values import is_text
from runtime.core.values.verdicts import GATES
from runtime.errors import Forbidden, InvalidInput, RequestError
from runtime.ports.access import Actor

logger = logging.getLogger(__name__)

MAX_ITEMS = 50
COUNTED_ABOVE = 20  # items: above it, the reviewer repeats their number
IN_BATCH = (Verdict.APPROVE, Verdict.DENY)
NEEDS_REASON = "is required to continue all these runs"
PASSES = 2  # over the gates of a withdrawal
BUSY = (OperationalError, psycopg.OperationalError)  # a lock was not granted in time
STAYS = "Its run was busy. Continue this change again."


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """What became of one request: its state now, None if the actor cannot read it, and why nothing was done."""

    approval_id: UUID
    approval: ApprovalView | None
    problem: RequestError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A run that stays at its version gate, and why."""

    run: UUID
    approval_id: UUID
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The number of runs that continue, and those that stay."""

    continued: int
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """The number of gates that opened again, and of those that did not, because their runs were busy."""

    opened: int
    left: int


def find_batch_refusal(approval: ApprovalView, verdict: Verdict) -> RequestError | None:
    """Say why this request does not get this verdict together with others; None if it may."""
    if approval.status != "pending":
        by = f" by {approval.decided_by}" if approval.decided_by else ""
        return NotTogether(f"It was already {approval.status}{by}.")
    if approval.expires_at is not None and approval.expires_at <= clock.read_time():
        return NotTogether("It has expired.")
    if approval.denial is not None:
        return approval.denial
    if alone := GATES[GateKind(approval.kind)].alone:
        return NotTogether(alone)
    if verdict is not Verdict.APPROVE:
        return None
    if approval.confirm is not None or approval.risk not in policy.UNDOABLE:
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
    reason_text = checks.check_reason(reason, decided_verdict)
    if len(items) > COUNTED_ABOVE and str(count).strip() != str(len(items)):
        raise InvalidInput(
            "count",
            f"must be {len(items)}, the number of ticked requests: more than {COUNTED_ABOVE} need it",
        )
    by_id = {
        view.id: view for view in approval_views.list_approvals_by_id(list(items), actor=actor)
    }
    if decided_verdict is Verdict.APPROVE:
        approved = [
            row for row in by_id.values() if find_batch_refusal(row, decided_verdict) is None
        ]
        if len({name_call_kind(row) for row in approved}) > 1:
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
        _act_on_each(
            list(items),
            by_id,
            lambda approval: find_batch_refusal(approval, decided_verdict),
            act,
            actor,
        )
    )


def undo_each(*, items: Sequence[UUID], actor: Actor) -> tuple[BatchOutcome, ...]:
    """Undo the actor's own decision on each request whose undo window is open. Raises InvalidInput naming `item`."""
    _check_number(items)
    by_id = {view.id: view for view in approval_views.list_approvals_by_id(items, actor=actor)}
    return tuple(
        _act_on_each(
            items,
            by_id,
            lambda approval: None,
            lambda approval: undo(approval_id=approval.id, actor=actor),
            actor,
        )
    )


def name_call_kind(approval: ApprovalView) -> tuple[str, ...]:
    """Name the kind of a call: its agent and its tool."""
    return tuple(approval.path[-2:])


def continue_all(
    *, agent: object, before: object, after: object, count: object, reason: object, actor: Actor
) -> Decided:
    """Let every waiting run of this change continue, and every run that reaches it later.

    `count` confirms the number of waiting runs. A busy run stays, until an admin continues this change again. Raises,
    in this order: NotFound for a person who is no admin; Forbidden for an admin who may not decide at version gates;
    NotFound if no run waits for this change; InvalidInput naming `after` if a version was never published, `count` or
    `reason`.
    """
    principal = principals.find_principal(actor)
    if principal is None or not principal.has(principals.Scope.ADMIN):
        raise NotFound
    denial = version_changes.find_refusal(principal)
    if denial is not None:
        audit.log_refusal(actor.person, "versions of agents", denial.code)
        raise denial
    waiting = version_changes.find(_make_version_pair(agent, before, after), principal)
    if waiting is None:
        raise NotFound
    if waiting.differences is None:
        raise InvalidInput(
            "after",
            "names a version that was never published, or `before` does: decide each run on its own page",
        )
    if isinstance(count, bool) or not isinstance(count, int) or count != waiting.count:
        raise InvalidInput("count", f"must be the number of waiting runs, which is {waiting.count}")
    reason = validate_reason(reason, NEEDS_REASON)
    numbers = {"count": waiting.count, "withdrawn": version_changes.count_withdrawals(waiting.pair)}
    change = f"continued {waiting.count} runs of"
    _sign(VersionDecision, waiting.pair, reason, actor, change, **numbers)
    left_out = [left for run in waiting.runs if (left := _decide(run, reason, actor)) is not None]
    return Decided(continued=waiting.count - len(left_out), left=tuple(left_out))


def withdraw(
    *, agent: object, before: object, after: object, reason: object, actor: Actor
) -> Withdrawn:
    """Withdraw the decision on this change: runs that reach it later ask again, each at its own gate.

    The gates that it decided, and where it is not final yet, open again. If runs were busy, another withdrawal opens
    the gates that are left. Any admin may withdraw it, because that lets no run continue. Raises NotFound for a person
    who is no admin, and if no decision on this change counts and no gate is left; InvalidInput naming `reason`.
    """
    principal = principals.find_principal(actor)
    if principal is None or not principal.has(principals.Scope.ADMIN):
        raise NotFound
    pair = _make_version_pair(agent, before, after)
    counts, gates = version_changes.find_decision(pair) is not None, version_changes.to_undo(pair)
    if not counts and not gates:
        raise NotFound
    reason = validate_reason(reason, "is required to withdraw a decision")
    if counts:
        _sign(VersionWithdrawal, pair, reason, actor, "withdrew the decision to continue")
    return _open_again({gate: decision.by for gate, decision in gates.items()}, actor)


def _check_number(items: Mapping[UUID, object] | Sequence[UUID]) -> None:
    if not 1 <= len(items) <= MAX_ITEMS:
        raise InvalidInput("item", f"must be 1 to {MAX_ITEMS} requests, and {len(items)} are given")


def _act_on_each(
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


def _open_again(gates: Mapping[UUID, str], actor: Actor) -> Withdrawn:
    """Take back each gate's decision by this person, in a transaction of its own: a busy run holds up no other gate."""
    count = 0
    for _ in range(PASSES):
        busy = {}
        for gate, by in gates.items():
            try:
                count += take_back(approval_id=gate, by=by, actor=actor)
            except BUSY:
                logger.warning(
                    "The decision of request %s is not taken back yet", gate, exc_info=True
                )
                busy[gate] = by
        gates = busy
    return Withdrawn(opened=count, left=len(gates))


def _make_version_pair(agent: object, before: object, after: object) -> version_changes.VersionPair:
    if not isinstance(agent, str) or not isinstance(before, str) or not isinstance(after, str):
        raise NotFound
    if not all(is_text(text) for text in (agent, before, after)):
        raise NotFound  # Postgres refuses it
    return version_changes.VersionPair(agent=agent, before=before, after=after)


def _sign(
    kind: type[VersionDecision | VersionWithdrawal],
    pair: version_changes.VersionPair,
    reason: str,
    actor: Actor,
    change: str,
    **columns: int,
) -> None:
    by = {"by": actor.person, "token": actor.token, "reason": reason, "at": clock.read_time()}
    signed_rows.add(kind(**asdict(pair), **by, **columns))
    audit.log_change(actor.person, f"{change} {pair.agent} from {pair.before} under {pair.after}")


def _decide(run: version_changes.WaitingRun, reason: str, actor: Actor) -> Left | None:
    """Decide one gate; return why it stays."""
    try:
        decide(
            approval_id=run.approval_id,
            verdict=Verdict.CONTINUE,
            digest=run.digest,
            reason=reason,
            actor=actor,
        )
    except (ApprovalError, Forbidden, InvalidInput) as exc:
        return Left(run=run.run, approval_id=run.approval_id, reason=str(exc))
    except BUSY:
        logger.warning("The version gate %s is not decided yet", run.approval_id, exc_info=True)
        return Left(run=run.run, approval_id=run.approval_id, reason=STAYS)
    return None
