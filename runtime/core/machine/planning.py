"""Plans the next commands of a run from its state alone: `plan(continuation)`.

No earlier plan is kept. The worker records outcomes as events, and the next state is planned anew.
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

from runtime.core.call_states import SETTLED, CallState
from runtime.core.commands import (
    AnswerInquiry,
    CallModel,
    CancelRun,
    CheckCall,
    CloseFrame,
    Command,
    EndRun,
    FailFrame,
    OpenFrame,
    OpenInDoubt,
    StartTool,
    StartWait,
)
from runtime.core.continuation import (
    MAX_REFUSALS,
    Call,
    Continuation,
    Denial,
    Frame,
    FrameState,
    Phase,
)
from runtime.core.ids import ROOT, child_frame
from runtime.core.limits import plain
from runtime.core.machine import compaction, plans
from runtime.core.machine.calls.item_limits import too_many_denials, why_item_ends
from runtime.core.machine.gates import is_blocked_by_gate


def plan(now: Continuation) -> tuple[Command, ...]:
    """Return the commands for this state, oldest frame first. A started call needs none, because it is running.

    A run that is being cancelled gets only its end, once no call is running. A paused run gets no command.
    """
    if now.phase is Phase.CANCELLING:
        return () if _under_way(now) else (EndRun(),)
    if now.phase is not Phase.STARTED or now.is_paused:
        return ()
    if now.refusals >= MAX_REFUSALS:
        return (CancelRun(reason=_too_many_refusals(now)),)
    if now.denials and (reason := too_many_denials(_counted(now))):
        return (CancelRun(reason=reason),)
    if not now.frames:
        return (OpenFrame(frame=ROOT, agent=now.agent, input=now.input),)
    effects: list[Command] = []
    for frame in now.frames.values():
        if not is_blocked_by_gate(now, frame.id):
            effects += _plan_frame(now, frame)
    for one in now.questions:
        if not is_blocked_by_gate(now, one.frame):
            effects.append(AnswerInquiry(frame=one.frame, inquiry=one.id))
    return tuple(effects)


def _plan_frame(now: Continuation, frame: Frame) -> Sequence[Command]:
    match frame.state:
        case FrameState.ASKING:
            if frame.parent is not None and (error := why_item_ends(now, frame)):
                return (FailFrame(frame=frame.id, error=error),)
            summary = compaction.is_due(frame) or compaction.memory_is_due(now, frame)
            return (CallModel(frame=frame.id, summary=summary),)
        case FrameState.ACTING:
            return _plan_calls(frame)
        case FrameState.ANSWERED | FrameState.FAILED:
            return (EndRun(),) if frame.id == ROOT else (CloseFrame(frame=frame.id),)
        case FrameState.RETRYING | FrameState.CLOSED:
            return ()
        case _ as never:
            assert_never(never)


def _plan_calls(frame: Frame) -> list[Command]:
    """Return the commands for the calls of a turn. Those after a change of the agent's plan belong to the new plan."""
    commands: list[Command] = []
    for call in _within_limit(frame):
        if (command := _plan_call(frame, call)) is not None:
            commands.append(command)
        if plans.may_change(call):
            break
    return commands


def _within_limit(frame: Frame) -> Sequence[Call]:
    """Return the calls of a turn. At most `at_once` are open; the next one is checked when one is settled."""
    calls = frame.of_turn()
    if not frame.at_once:
        return calls
    is_open = [call.state is not CallState.PROPOSED and call.state not in SETTLED for call in calls]
    places = frame.at_once - sum(is_open)
    within: list[Call] = []
    for call in calls:
        if call.state is not CallState.PROPOSED:
            within.append(call)
        elif places > 0:
            places -= 1
            within.append(call)
    return within


def _plan_call(frame: Frame, call: Call) -> Command | None:
    match call.state:
        case CallState.PROPOSED:
            return CheckCall(frame=frame.id, call=call.id)
        case CallState.ADMITTED if call.terms and call.terms.delegate:
            return OpenFrame(
                frame=child_frame(frame.id, call.id),
                agent=call.terms.delegate,
                input=call.args,
                parent=frame.id,
                call=call.id,
            )
        case CallState.ADMITTED if call.terms and call.terms.waits:
            return StartWait(frame=frame.id, call=call.id)
        case CallState.RETRYING if call.until is not None:
            return None
        case CallState.ADMITTED | CallState.RETRYING:
            return StartTool(frame=frame.id, call=call.id, attempt=call.attempt + 1)
        case CallState.UNKNOWN if call.gate is None:
            return OpenInDoubt(frame=frame.id, call=call.id)
        case _:
            return None


def _too_many_refusals(now: Continuation) -> str:
    """Word the end of the run, with the last refused call that is still known: it shows the model's mistake."""
    calls = (call for frame in now.frames.values() for call in frame.calls)
    refused = [call for call in calls if call.state is CallState.REFUSED]
    among = f", among them {refused[-1].tool}: {refused[-1].result}" if refused else ""
    return plain(f"{now.refusals} calls that could not be made{among}")


def _counted(now: Continuation) -> Iterator[Denial]:
    return (denial for denial in now.denials.values() if denial.counts)


def _under_way(now: Continuation) -> bool:
    return any(
        call.state is CallState.STARTED for frame in now.frames.values() for call in frame.calls
    )
