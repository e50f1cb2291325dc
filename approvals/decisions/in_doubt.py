"""Resolves a call in doubt: a reviewer says whether it happened, runs again or is given up."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.decisions import checks, closing, commit, refusals
from approvals.errors import TooEarly
from approvals.models import Approval
from approvals.queries.requests import ApprovalView
from approvals.requests import results
from approvals.signed import audit
from runtime.core.values.enums import Decision, GateKind, Verdict
from runtime.errors import GateNotOpen, InvalidInput
from runtime.ports.access import Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentResolution:
    """The values of a resolution as the client sent them."""

    outcome: object
    result: object
    reason: object
    confirm: object


def resolve(
    *,
    run: UUID,
    gate: UUID,
    outcome: object,
    result: object = results.ABSENT,
    reason: object,
    actor: Actor,
    confirm: object = None,
) -> ApprovalView:
    """Record the outcome of a call in doubt: `happened`, `run_again` or `give_up`.

    `result` is a JSON value that fits the tool's result schema; it is required if the call happened, and not allowed
    otherwise. `confirm` repeats the request's own `confirm`, which running a high-risk call again must do. Raises, in
    this order: NotFound; Forbidden; AlreadyDecided, Cancelled or Expired; TamperedWith; TooEarly with the time from
    which the call can run again; InvalidInput naming `outcome`; NotShown; InvalidInput naming `confirm`, `reason`,
    `result` or a path in it. Nothing is written when it raises, except that Expired and refusals are recorded.
    """
    answer = _SentResolution(outcome=outcome, result=result, reason=reason, confirm=confirm)
    with refusals.recorded(actor, run=run, gate=gate):
        try:
            made = _attempt(run, gate, answer, actor)
        except GateNotOpen:  # another action on the run came in between
            with commit.last_attempt():
                audit.lock_runs(run)
                made = _attempt(run, gate, answer, actor)
        return checks.decided(made)


def _attempt(run: UUID, gate: UUID, answer: _SentResolution, actor: Actor) -> checks.Outcome:
    """Check and write. Raises GateNotOpen, with nothing written, if another action on the run came in between."""
    loaded = checks.open_request(commit.load_at_gate(run, gate, actor))
    approval = loaded.approval
    decision = None
    if not closing.is_expired(approval, loaded.at):
        if (
            answer.outcome == Verdict.RUN_AGAIN
            and approval.not_before
            and loaded.at < approval.not_before
        ):
            raise TooEarly(approval.not_before)
        decision = _decision(loaded, answer, actor)
    return checks.close(loaded, decision, actor)


def _decision(loaded: commit.LoadedApproval, answer: _SentResolution, actor: Actor) -> Decision:
    """Validate the values. Raises NotShown, InvalidInput."""
    approval = loaded.approval
    verdict = checks.verdict(answer.outcome, "outcome", GateKind.IN_DOUBT, approval)
    checks.check_shown(loaded, verdict)
    checks.check_confirmed(approval, verdict, answer.confirm)
    return Decision(
        verdict=verdict,
        by=actor.person,
        reason=checks.reason(answer.reason, verdict, approval),
        result=_result(answer.result, verdict, approval),
    )


def _result(result: Any, verdict: Verdict, approval: Approval) -> Any:
    if verdict is not Verdict.HAPPENED:
        if result is not results.ABSENT and result is not None:
            raise InvalidInput("result", "is only for a call that happened")
        return None
    if result is results.ABSENT:
        raise InvalidInput("result", "is required if the call happened")
    results.check(result, results.schema_of(approval))
    return result
