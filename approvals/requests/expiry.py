"""Makes the decision of the clock: the consequence that a request's demands name for its expiry.

It follows from the stored request alone, which its digest and MAC cover. So a worker makes it again and compares.
"""

from datetime import UTC

from approvals.models import Approval
from approvals.requests import schemas
from approvals.rules.policy import Demands, OnExpiry
from approvals.signed import votes
from runtime.core.values.enums import Decision, Verdict
from runtime.errors import InvalidInput
from runtime.ports.approvals import NotConfirmed


def decision(approval: Approval) -> Decision:
    """Return the decision if no person decided in time. Demands that cannot be read deny the call."""
    assert approval.expires_at is not None
    due = approval.expires_at.astimezone(UTC)
    reason = f"No decision before {due:%Y-%m-%d %H:%M:%S} UTC."
    demands = _demands(approval)
    if demands is None or demands.on_expiry is OnExpiry.DENY:
        return Decision(verdict=Verdict.EXPIRE, by="", reason=reason)
    rule = f"{reason} The policy's rule {demands.rule}"
    if demands.on_expiry is OnExpiry.FAIL:
        return Decision(verdict=Verdict.EXPIRE, by="", reason=f"{rule} ends the run.")
    unfit = misfit(approval)
    if unfit:
        return Decision(
            verdict=Verdict.EXPIRE,
            by="",
            reason=f"{rule} has an answer that the tool could not return: {unfit}.",
        )
    return Decision(
        verdict=Verdict.ANSWER, by="", reason=f"{rule} gave this answer.", result=demands.answer
    )


def fails_run(approval: Approval) -> bool:
    """Tell whether the run fails if the request expires."""
    demands = _demands(approval)
    return demands is not None and demands.on_expiry is OnExpiry.FAIL


def misfit(approval: Approval) -> str:
    """Say why the tool could not return the answer of the policy; empty if it could, or if there is no answer."""
    demands = _demands(approval)
    if demands is None or demands.on_expiry is not OnExpiry.ANSWER:
        return ""
    try:
        schemas.check_result(demands.answer, schemas.schema_of(approval))
    except InvalidInput as exc:
        return f"{exc.field} {exc.detail}"
    except NotConfirmed as exc:
        return str(exc)
    return ""


def _demands(approval: Approval) -> Demands | None:
    """Read the demands; None also for those that cannot be read: a worker then finds that the request was changed."""
    try:
        return votes.demands(approval)
    except NotConfirmed:
        return None
