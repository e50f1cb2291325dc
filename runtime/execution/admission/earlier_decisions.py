"""Says what earlier decisions of people still cover: an approval of a call, an allowance, or a denial."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from runtime.core.call_options import CallOptions
from runtime.core.continuation import Call, Continuation, Pending
from runtime.core.digest import same, sha256_of
from runtime.core.enums import RISKS, Decision, Risk
from runtime.core.schemas.changes import is_compatible
from runtime.errors import Tampered
from runtime.execution.admission.gates import AdmissionResult
from runtime.execution.admission.terms import terms_of
from runtime.ports.agents import CallInfo, CallRejected
from runtime.ports.approvals import ApprovalPort, ApprovalVoid, NotConfirmed, VerifiedApproval

_REPEATS = "this repeats {} of the same turn, which is made once"


def as_approved(
    approvals: ApprovalPort, now: Continuation, frame: str, call: Call, info: CallInfo
) -> CallOptions:
    """Return the call's options, with the approved digest if its schema has changed compatibly since the approval.

    The approved digest covers the schema that was shown, so another one in its place does not match.
    """
    terms, approved = terms_of(now, frame, call, info), call.terms
    if call.gate is None or approved is None or terms.digest == approved.digest:
        return terms
    approved_schema = approvals.schema_at(call.gate)
    if approved_schema is None or not is_compatible(approved_schema, info.schema):
        return terms
    before = terms_of(now, frame, call, replace(info, schema_digest=sha256_of(approved_schema)))
    return replace(terms, digest=before.digest) if before.digest == approved.digest else terms


def approval_of(
    approvals: ApprovalPort, now: Continuation, call: Call, risk: Risk, decision: Decision | None
) -> VerifiedApproval | None:
    """Return the verified approval of a call at its gate, None if it is no longer valid. Raise Tampered."""
    assert call.gate is not None
    assert call.terms is not None
    try:
        return approvals.verify_approval(
            gate=call.gate,
            action_digest=call.terms.digest,
            risk=risk,
            origin=now.origin,
            reviewers=now.reviewers,
            decision=decision,
        )
    except ApprovalVoid:
        return None
    except NotConfirmed as exc:
        subject = f"decision of gate {call.gate}" if decision else f"approval of call {call.id}"
        raise Tampered(f"the {subject}: {exc}") from exc


def passed_by_allowance(
    approvals: ApprovalPort, result: AdmissionResult, uses: Mapping[UUID, int]
) -> AdmissionResult:
    """Let an allowance decide the gate, if one covers the call."""
    if result.snapshot is None:
        return result
    allowed = approvals.allow(result.snapshot, uses)
    if allowed is None:
        return result
    review_snapshot = replace(result.snapshot, allowed=allowed)
    return replace(result, snapshot=review_snapshot, allowed=allowed)


def needs_recheck(call: Call) -> bool:
    """Return whether a call is checked again just before it starts: a person approved it, or conditions judged it."""
    return call.gate is not None or (call.terms is not None and call.terms.risk is not None)


def is_stricter(info: CallInfo, approved: CallOptions) -> bool:
    """Return whether the call is a higher risk now than when its conditions judged it."""
    return approved.risk is not None and RISKS.index(info.risk) > RISKS.index(approved.risk)


def require_new(now: Continuation, frame: str, call: Call) -> None:
    """Refuse a call that its model has already proposed in this turn."""
    for other in now.frame(frame).of_turn():
        if other.id == call.id:
            return
        is_alike = other.tool == call.tool and other.args == call.args  # cheaper than `same`
        if is_alike and same(other.args, call.args):
            raise CallRejected(_REPEATS.format(other.id))


def repeats(now: Continuation, gate: Pending, digest: str) -> str | None:
    """Return why an edited call with this action digest is not made: its turn has the same one. None if not."""
    for other in now.frame(gate.frame).of_turn():
        if other.id != gate.call and other.terms is not None and other.terms.digest == digest:
            return _REPEATS.format(other.id)
    return None


def require_not_denied(now: Continuation, terms: CallOptions) -> None:
    """Refuse a call that a person has denied in this run: the same tool with the same arguments."""
    reason = denied_before(now, terms.digest)
    if reason is not None:
        raise CallRejected(reason)


def denied_before(now: Continuation, digest: str) -> str | None:
    """Return why a call with this action digest is not made: a person denied it in this run. None if not."""
    denial = now.denials.get(digest)
    if denial is None:
        return None
    if denial.changes:
        return f"a person requested changes to this call, and it has none. The changes: {denial.reason}"
    return (
        "a person denied this call before in this run, and it is not asked again. "
        f"The reason given: {denial.reason}"
    )
