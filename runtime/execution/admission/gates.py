"""Opens gates: the event, and the snapshot of the call for reviewers."""

import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.continuation import Call, Continuation, Frame, Outage
from runtime.core.digest import action_digest, sha256_of
from runtime.core.enums import EffectClass, GateKind
from runtime.core.events import CallAdmitted, CallRefused, GateOpened
from runtime.core.ids import RANDOM_BITS, by_time
from runtime.core.limits import plain
from runtime.core.machine import plans, repetition
from runtime.core.machine.calls.revisions import revision_of
from runtime.core.machine.origin import steered_by
from runtime.core.verdicts import GATES
from runtime.ports.agents import CallInfo
from runtime.ports.approvals import Allowed, ReviewSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionResult:
    """The event with the result of a check, and the snapshot for reviewers if a gate opens.

    `allowed` is the use of an allowance that decides the gate at once.
    """

    event: CallAdmitted | CallRefused | GateOpened
    snapshot: ReviewSnapshot | None = None
    allowed: Allowed | None = None


def gate_id(at: datetime) -> UUID:
    """Make the id of a gate that opens at `at`."""
    return by_time(at, secrets.randbits(RANDOM_BITS))


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
        gate=gate_id(at),
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
    digest = action_digest(
        tool="", schema=sha256_of({}), args=args, path=path, effect=EffectClass.READ
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
        origin=steered_by(now),
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
    reason = plain(f"No reply comes from the model of {frame.agent}: {outage.error}")
    return open_frame_gate(now, frame.id, GateKind.HOLD, reason=reason, args=args, at=at)


def open_repetition_gate(now: Continuation, frame: Frame, at: datetime) -> AdmissionResult:
    """Return the hold that tells people what the model of a frame repeats, and how often it did."""
    times = repetition.count_repeats(frame)
    tools = [call.tool for call in frame.of_turn()]
    reason = plain(
        f"{frame.agent} repeats itself: {', '.join(tools)} had the same arguments and result"
        f" {times} times in a row"
    )
    args = {"agent": frame.agent, "calls": tools, "times": times}
    return open_frame_gate(now, frame.id, GateKind.HOLD, reason=reason, args=args, at=at)


def open_credential_gate(
    now: Continuation, frame: str, call: Call, at: datetime
) -> AdmissionResult:
    """Return the hold that tells people which credential of a call they must replace, and how."""
    args = {"credential": call.credential, "tool": call.tool, "call": call.id}
    return open_frame_gate(now, frame, GateKind.HOLD, reason=call.credential, args=args, at=at)


def snapshot(now: Continuation, event: GateOpened, call: Call, info: CallInfo) -> ReviewSnapshot:
    """Return the snapshot of a call for reviewers."""
    assert event.terms is not None  # only a gate of a frame has none
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
        origin=steered_by(now),
        expires_at=event.expires_at,
        result_schema=info.result_schema,
        preview=_preview(info, call, now.frame(event.frame)),
    )


def with_revision(now: Continuation, review: ReviewSnapshot | None) -> ReviewSnapshot | None:
    """Return the snapshot of a call that revises an earlier one with their link. Its gate opens in state `now`."""
    if review is None or review.kind is not GateKind.APPROVAL:
        return review
    revision = revision_of(now.frame(review.frame), now.call(review.frame, review.call))
    return (
        review
        if revision is None
        else replace(review, revises=revision.gate, revision=revision.number)
    )


def _preview(info: CallInfo, call: Call, frame: Frame) -> dict[str, Any] | None:
    """Return the findings of the worker about the call, None if there are none."""
    newest, approved = call.preview, call.shown
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
    if (plan_position := plans.place_of(frame.todo)) is not None:
        findings["plan"] = plan_position
    return findings or None
