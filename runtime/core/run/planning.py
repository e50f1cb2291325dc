"""Plans the next commands of a run from its state alone: `plan(continuation)`.

Commands are plain data. No earlier plan is kept: the worker records outcomes as events, and the next state is planned
anew.
"""

from dataclasses import dataclass
from typing import Any, assert_never
from uuid import UUID

from runtime.core.run import frames
from runtime.core.run.calls import describe_too_many_denials, explain_item_end
from runtime.core.run.continuation import MAX_REFUSALS, Continuation, Frame, FrameState, Phase
from runtime.core.run.gates import is_blocked_by_gate
from runtime.core.values.enums import SETTLED, CallState
from runtime.core.values.ids import ROOT, make_child_frame_id
from runtime.core.values.texts import clean_text


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFrame:
    """Look the agent up and open a frame for it."""

    frame: str
    agent: str
    input: Any
    parent: str | None = None
    call: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Call the frame's model with the frame's messages; with `summary`, have them summed up first."""

    frame: str
    summary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerInquiry:
    """Have the frame's model answer a person's inquiry about a call, outside of its conversation."""

    frame: str
    inquiry: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCall:
    """Check a proposed call: it is admitted, gated or refused."""

    frame: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTool:
    """Record the intent of this attempt, then perform it."""

    frame: str
    call: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWait:
    """Start the wait of a call, as its options say."""

    frame: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenInDoubt:
    """Open an in-doubt gate for a call whose outcome is unknown."""

    frame: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailFrame:
    """Fail a frame whose item cannot continue, in place of the next call of its model."""

    frame: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFrame:
    """Close a finished frame: its outcome becomes that of the parent's call."""

    frame: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRun:
    """End a run that cannot continue: start nothing new, and fail it when its running calls have ended."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """End the run: its root agent has finished, or a person ended it."""


Command = (
    OpenFrame
    | CallModel
    | AnswerInquiry
    | CheckCall
    | StartTool
    | StartWait
    | OpenInDoubt
    | FailFrame
    | CloseFrame
    | CancelRun
    | EndRun
)


def plan(now: Continuation) -> tuple[Command, ...]:
    """Return the commands for this state, oldest frame first. A started call needs none, because it is running.

    A run that is being cancelled gets only its end, once no call is running. A paused run gets no command.
    """
    if now.phase is Phase.CANCELLING:
        return () if is_under_way(now) else (EndRun(),)
    if now.phase is not Phase.STARTED or now.paused is not None:
        return ()
    if now.refusals >= MAX_REFUSALS:
        # The last refused call that is still known shows the model's mistake.
        calls = (call for frame in now.frames.values() for call in frame.calls)
        refused = [call for call in calls if call.state is CallState.REFUSED]
        among = f", among them {refused[-1].tool}: {refused[-1].result}" if refused else ""
        reason = clean_text(f"{now.refusals} calls that could not be made{among}")
        return (CancelRun(reason=reason),)
    if now.denials:
        counted = [denial for denial in now.denials.values() if denial.counts]
        if reason := describe_too_many_denials(counted):
            return (CancelRun(reason=reason),)
    if not now.frames:
        return (OpenFrame(frame=ROOT, agent=now.agent, input=now.input),)
    effects: list[Command] = []
    for frame in now.frames.values():
        if now.pending and is_blocked_by_gate(now, frame.id):
            continue
        match frame.state:
            case FrameState.ASKING:
                if frame.parent is not None and (error := explain_item_end(now, frame)):
                    effects.append(FailFrame(frame=frame.id, error=error))
                    continue
                is_due = frames.needs_compaction(frame)
                summary = is_due or frames.needs_memory_summary(now, frame)
                effects.append(CallModel(frame=frame.id, summary=summary))
            case FrameState.ACTING:
                effects += _plan_calls(frame)
            case FrameState.ANSWERED | FrameState.FAILED:
                effects.append(EndRun() if frame.id == ROOT else CloseFrame(frame=frame.id))
            case FrameState.RETRYING | FrameState.CLOSED:
                pass
            case _ as never:
                assert_never(never)
    for inquiry in now.questions:
        if not is_blocked_by_gate(now, inquiry.frame):
            effects.append(AnswerInquiry(frame=inquiry.frame, inquiry=inquiry.id))
    return tuple(effects)


def _plan_calls(frame: Frame) -> list[Command]:
    """Return the commands for the calls of a turn. Those after a change of the agent's plan belong to the new plan.

    At most `at_once` calls are open; the next one is checked when one is settled.
    """
    calls = frame.list_turn_calls()
    places = len(calls)
    if frame.at_once:
        is_open = [
            call.state is not CallState.PROPOSED and call.state not in SETTLED for call in calls
        ]
        places = frame.at_once - sum(is_open)
    commands: list[Command] = []
    for call in calls:
        match call.state:
            case CallState.PROPOSED if places <= 0:
                continue
            case CallState.PROPOSED:
                places -= 1
                commands.append(CheckCall(frame=frame.id, call=call.id))
            case CallState.ADMITTED if call.terms and call.terms.delegate:
                child = OpenFrame(
                    frame=make_child_frame_id(frame.id, call.id),
                    agent=call.terms.delegate,
                    input=call.args,
                    parent=frame.id,
                    call=call.id,
                )
                commands.append(child)
            case CallState.ADMITTED if call.terms and call.terms.waits:
                commands.append(StartWait(frame=frame.id, call=call.id))
            case CallState.RETRYING if call.until is not None:
                pass
            case CallState.ADMITTED | CallState.RETRYING:
                attempt = call.attempt + 1
                commands.append(StartTool(frame=frame.id, call=call.id, attempt=attempt))
            case CallState.UNKNOWN if call.gate is None:
                commands.append(OpenInDoubt(frame=frame.id, call=call.id))
            case _:
                pass
        if call.terms is not None and call.terms.plan and call.state not in SETTLED:
            break  # it may still change the plan
    return commands


def is_under_way(now: Continuation) -> bool:
    """Say whether a call of the run is running."""
    return any(
        call.state is CallState.STARTED for frame in now.frames.values() for call in frame.calls
    )
