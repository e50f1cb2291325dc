"""Opens gates, with the snapshot for reviewers, and says which earlier decisions still cover a call.

An approval, an allowance or a denial decided earlier spares people another gate.
"""

import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.run import frames
from runtime.core.run.calls import find_revision
from runtime.core.run.continuation import (
    Call,
    Continuation,
    Frame,
    Outage,
    Pending,
    list_steering_people,
)
from runtime.core.run.events import CallAdmitted, CallRefused, GateOpened
from runtime.core.values.call_options import CallOptions
from runtime.core.values.enums import RISKS, Decision, EffectClass, GateKind, Risk
from runtime.core.values.ids import RANDOM_BITS, make_uuid7
from runtime.core.values.json_schema import is_compatible
from runtime.core.values.json_values import hash_action, hash_value, is_equal
from runtime.core.values.texts import clean_text
from runtime.core.values.verdicts import GATES
from runtime.errors import Tampered
from runtime.ports.agents import CallInfo, CallRejected
from runtime.ports.approvals import (
    Allowed,
    ApprovalPort,
    ApprovalVoid,
    NotConfirmed,
    PolicyFacts,
    ReviewSnapshot,
    VerifiedApproval,
)

_REPEATS = "this repeats {} of the same turn, which is made once"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionResult:
    """The event with the result of a check, and the snapshot for reviewers if a gate opens.

    `allowed` is the use of an allowance that decides the gate at once.
    """

    event: CallAdmitted | CallRefused | GateOpened
    snapshot: ReviewSnapshot | None = None
    allowed: Allowed | None = None

    @property
    def gate(self) -> GateOpened | None:
        """The gate that opens, None if none does."""
        return self.event if isinstance(self.event, GateOpened) else None


def make_gate_id(at: datetime) -> UUID:
    """Make the id of a gate that opens at `at`."""
    return make_uuid7(at, secrets.randbits(RANDOM_BITS))


def open_frame_gate(
    now: Continuation,
    frame: str,
    kind: GateKind,
    *,
    reason: str,
    args: dict[str, Any],
    at: datetime,
    version: str = "",
) -> AdmissionResult:
    """Return a gate of `kind` at `frame`.

    `reason` is one sentence; `args` is the data that people need to decide, as JSON.
    """
    event = GateOpened(
        gate=make_gate_id(at),
        kind=kind,
        frame=frame,
        call="",
        terms=None,
        reason=reason,
        at=at,
        version=version,
    )
    path, risk = now.path(frame), GATES[kind].risk
    assert risk is not None  # that of a call is its own
    digest = hash_action(
        tool="", schema=hash_value({}), args=args, path=path, effect=EffectClass.READ
    )
    review_snapshot = ReviewSnapshot(
        run=now.run,
        gate=event.gate,
        kind=kind,
        frame=frame,
        call="",
        tool="",
        args=args,
        schema={},
        path=path,
        effect=EffectClass.READ,
        risk=risk,
        sentence=reason,
        action_digest=digest,
        requester=now.requester,
        origin=list_steering_people(now),
    )
    return AdmissionResult(event=event, snapshot=review_snapshot)


def open_outage_gate(
    now: Continuation, frame: Frame, outage: Outage, at: datetime
) -> AdmissionResult:
    """Return the hold that tells people that no model of the frame's agent has replied for too long."""
    args = {
        "agent": frame.agent,
        "since": outage.since.isoformat(timespec="seconds"),
        "rounds": outage.rounds,
        "last_answer": outage.error,
    }
    reason = clean_text(f"No reply comes from the model of {frame.agent}: {outage.error}")
    return open_frame_gate(now, frame.id, GateKind.HOLD, reason=reason, args=args, at=at)


def open_repetition_gate(now: Continuation, frame: Frame, at: datetime) -> AdmissionResult:
    """Return the hold that tells people what the model of a frame repeats, and how often it did."""
    times = frames.count_repeats(frame)
    tools = [call.tool for call in frame.list_turn_calls()]
    reason = clean_text(
        f"{frame.agent} repeats itself: {', '.join(tools)} had the same arguments and result"
        f" {times} times in a row"
    )
    args = {"agent": frame.agent, "calls": tools, "times": times}
    return open_frame_gate(now, frame.id, GateKind.HOLD, reason=reason, args=args, at=at)


def snapshot(now: Continuation, event: GateOpened, call: Call, info: CallInfo) -> ReviewSnapshot:
    """Return the snapshot of a call for reviewers."""
    assert event.terms is not None  # only a gate of a frame has none
    frame = now.frame(event.frame)
    newest, approved = call.preview, call.shown
    # Of the worker about the call.
    findings: dict[str, Any] = {"unjudged": info.problem} if info.problem else {}
    if newest is not None and newest.material:
        findings["shown"] = newest.shown
    elif newest is not None and newest.missing:
        findings["missing"] = newest.missing
    differs = newest is not None and approved is not None and newest.material != approved.material
    if differs and approved is not None and approved.material:
        findings["before"] = approved.shown
    if call.edited is not None and call.edited.in_fork:
        findings["changed_by"] = call.edited.by
    if (plan_position := frames.find_current_item(frame.todo)) is not None:
        findings["plan"] = plan_position
    return ReviewSnapshot(
        run=now.run,
        gate=event.gate,
        kind=event.kind,
        frame=event.frame,
        call=call.id,
        tool=call.tool,
        args=call.args,
        schema=info.schema,
        path=now.path(event.frame, call.tool),
        effect=event.terms.effect,
        risk=info.risk,
        sentence=info.sentence,
        action_digest=event.terms.digest,
        requester=now.requester,
        origin=list_steering_people(now),
        expires_at=event.expires_at,
        result_schema=info.result_schema,
        preview=findings or None,
    )


def with_revision(now: Continuation, review: ReviewSnapshot) -> ReviewSnapshot:
    """Return the snapshot of a call that revises an earlier one with their link. Its gate opens in state `now`."""
    if review.kind is not GateKind.APPROVAL:
        return review
    revision = find_revision(now.frame(review.frame), now.call(review.frame, review.call))
    return (
        review
        if revision is None
        else replace(review, revises=revision.gate, revision=revision.number)
    )


def build_policy_facts(now: Continuation, frame: str, call: Call) -> PolicyFacts:
    """Return the facts of a call that the policy judges."""
    return PolicyFacts(path=now.path(frame, call.tool), args=call.args, requester=now.requester)


def build_call_terms(now: Continuation, frame: str, call: Call, info: CallInfo) -> CallOptions:
    """Return the terms of a call as this code describes it."""
    digest = hash_action(
        tool=info.tool,
        schema=info.schema_digest,
        args=call.args,
        path=now.path(frame, call.tool),
        effect=info.effect,
    )
    return CallOptions(
        effect=info.effect,
        digest=digest,
        deadline=info.deadline,
        delegate=info.delegate,
        retry=info.retry,
        waits=info.waits,
        risk=info.risk if info.judged else None,
        plan=info.plan,
        answers=info.answers,
        tells=info.tells,
    )


def as_approved(
    approvals: ApprovalPort, now: Continuation, frame: str, call: Call, info: CallInfo
) -> CallOptions:
    """Return the call's options, with the approved digest if its schema has changed compatibly since the approval.

    The approved digest covers the schema that was shown, so another one in its place does not match.
    """
    terms, approved = build_call_terms(now, frame, call, info), call.terms
    if call.gate is None or approved is None or terms.digest == approved.digest:
        return terms
    approved_schema = approvals.find_schema(call.gate)
    if approved_schema is None or not is_compatible(approved_schema, info.schema):
        return terms
    before = build_call_terms(
        now, frame, call, replace(info, schema_digest=hash_value(approved_schema))
    )
    return replace(terms, digest=before.digest) if before.digest == approved.digest else terms


def find_verified_approval(
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


def needs_recheck(call: Call) -> bool:
    """Return whether a call is checked again just before it starts: a person approved it, or conditions judged it."""
    return call.gate is not None or (call.terms is not None and call.terms.risk is not None)


def is_stricter(info: CallInfo, approved: CallOptions) -> bool:
    """Return whether the call is a higher risk now than when its conditions judged it."""
    return approved.risk is not None and RISKS.index(info.risk) > RISKS.index(approved.risk)


def require_new(frame: Frame, call: Call) -> None:
    """Refuse a call that its model has already proposed in this turn."""
    for other in frame.list_turn_calls():
        if other.id == call.id:
            return
        is_alike = other.tool == call.tool and other.args == call.args  # cheaper than `same`
        if is_alike and is_equal(other.args, call.args):
            raise CallRejected(_REPEATS.format(other.id))


def explain_repetition(now: Continuation, gate: Pending, digest: str) -> str | None:
    """Return why an edited call with this action digest is not made: its turn has the same one. None if not."""
    for other in now.frame(gate.frame).list_turn_calls():
        if other.id != gate.call and other.terms is not None and other.terms.digest == digest:
            return _REPEATS.format(other.id)
    return None


def require_not_denied(now: Continuation, terms: CallOptions) -> None:
    """Refuse a call that a person has denied in this run: the same tool with the same arguments."""
    reason = explain_earlier_denial(now, terms.digest)
    if reason is not None:
        raise CallRejected(reason)


def explain_earlier_denial(now: Continuation, digest: str) -> str | None:
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
