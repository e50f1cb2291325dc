"""Restores a failed run that a person tries again: it continues from where it failed, and no effect is repeated.

Results, messages, used approvals, denials and spending stay. Refusals and denials are counted anew. A frame whose
model failed asks it again. A call that was closed with the run is checked again, so people are asked again, about the
arguments that its model proposed. If an attempt at it may have had its effect, it is in doubt.
"""

import dataclasses

from runtime.core.call_states import CallState
from runtime.core.continuation import Call, Continuation, Denial, Frame, FrameState, Phase
from runtime.core.events import Retried
from runtime.core.fast_replace import replace
from runtime.core.machine.calls.edits import unedited
from runtime.core.machine.transitions import CALLS, FRAMES, next_state


def retried(now: Continuation, event: Retried, phase: Phase) -> Continuation:
    """Restore the failed run, in `phase`."""
    frames = {name: _frame(frame, event) for name, frame in now.left.items()}
    return replace(
        now,
        phase=phase,
        frames=frames,
        left={},
        outcome=None,
        refusals=0,
        denials=uncounted(now.denials),
        cancelled_by="",
    )


def uncounted(denials: dict[str, Denial]) -> dict[str, Denial]:
    """Return the denials of a run that is tried again: they stand, but no longer count towards its end."""
    return {digest: dataclasses.replace(denial, counts=False) for digest, denial in denials.items()}


def _frame(frame: Frame, event: Retried) -> Frame:
    calls = tuple(
        _call(call, event) if call.state is CallState.CLOSED else call for call in frame.calls
    )
    frame = replace(frame, calls=calls)
    if frame.state is not FrameState.FAILED:
        return frame
    return replace(
        frame,
        state=next_state(FRAMES, frame.state, event.type, subject=frame.id),
        attempt=frame.attempt + 1,
        failures=0,
        model="",
        ticket=0,
        outage=None,
        outcome=None,
    )


def _call(call: Call, event: Retried) -> Call:
    """Restore a closed call. An attempt that did not end as a failure may have had its effect."""
    in_doubt = call.attempt > call.failures
    trigger = f"{event.type}:in_doubt" if in_doubt else event.type
    state = next_state(CALLS, call.state, trigger, subject=call.id)
    call = replace(call, state=state, gate=None, until=None, result=None)
    return call if in_doubt else unedited(call)
