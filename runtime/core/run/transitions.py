"""The tables of legal transitions, one per machine. An absent key is an illegal transition.

A trigger is the event's type. If the next state depends on a verdict or outcome, it follows after a colon.
"""

from enum import StrEnum
from typing import TypeVar

from runtime.core.run.continuation import Call, Frame, FrameState, Pace, Phase
from runtime.core.values.enums import CallState
from runtime.core.values.errors import IllegalTransition
from runtime.core.values.verdicts import BEFORE_CALL, FRAME_GATES, VERDICTS

S = TypeVar("S", bound=StrEnum)

RUNS: dict[tuple[Phase, str], Phase] = {
    (Phase.NEW, "RunStarted"): Phase.STARTED,
    (Phase.STARTED, "Completed"): Phase.COMPLETED,
    (Phase.STARTED, "Failed"): Phase.FAILED,
    (Phase.FAILED, "Retried"): Phase.STARTED,
    (Phase.STARTED, "Cancelling"): Phase.CANCELLING,
    (Phase.STARTED, "Forked"): Phase.STARTED,
    (Phase.STARTED, "Exported"): Phase.EXPORTED,
    (Phase.EXPORTED, "Imported"): Phase.STARTED,
    (Phase.STARTED, "Paused"): Phase.STARTED,
    (Phase.STARTED, "Resumed"): Phase.STARTED,
    (Phase.STARTED, "MessageReceived"): Phase.STARTED,
    (Phase.CANCELLING, "Cancelled"): Phase.CANCELLED,
    (Phase.CANCELLING, "Failed"): Phase.FAILED,
}

PACES: dict[tuple[Pace, str], Pace] = {
    (Pace.RUNNING, "Paused"): Pace.PAUSED,
    (Pace.PAUSED, "Resumed"): Pace.RUNNING,
}

FRAMES: dict[tuple[FrameState, str], FrameState] = {
    (FrameState.ASKING, "ModelReplied:calls"): FrameState.ACTING,
    (FrameState.ASKING, "ModelReplied:answer"): FrameState.ANSWERED,
    # A message arrived while the model was answering.
    (FrameState.ASKING, "ModelReplied:interim"): FrameState.ASKING,
    (FrameState.ANSWERED, "MessageReceived"): FrameState.ASKING,
    (FrameState.ASKING, "ModelFailed"): FrameState.FAILED,
    (FrameState.ASKING, "Compacted"): FrameState.ASKING,
    (FrameState.ASKING, "MemorySummarised"): FrameState.ASKING,
    (FrameState.ASKING, "RetryScheduled"): FrameState.RETRYING,
    (FrameState.RETRYING, "WaitEnded"): FrameState.ASKING,
    (FrameState.ACTING, "TurnSettled"): FrameState.ASKING,
    (FrameState.ACTING, "TurnSettled:answer"): FrameState.ANSWERED,  # a held answer was released
    (FrameState.ANSWERED, "FrameClosed:answered"): FrameState.CLOSED,
    (FrameState.FAILED, "FrameClosed:failed"): FrameState.CLOSED,
    (FrameState.ANSWERED, "Completed"): FrameState.CLOSED,
    (FrameState.FAILED, "Failed"): FrameState.CLOSED,
    (FrameState.FAILED, "Retried"): FrameState.ASKING,
}


# A gate of the frame does not change its state.
FRAMES |= {
    (state, trigger): state
    for state in FrameState
    if state is not FrameState.CLOSED
    for trigger in (
        *(f"GateOpened:{kind}" for kind in sorted(FRAME_GATES)),
        *(f"GateDecided:{verdict}" for verdict, rule in VERDICTS.items() if not rule.call_becomes),
        "GateClosed",
    )
}


# The frame continues with another version of its agent and waits for the same as before.
FRAMES |= {(state, "AgentChanged"): state for state in FrameState if state is not FrameState.CLOSED}


CALLS: dict[tuple[CallState, str], CallState] = {
    (CallState.PROPOSED, "CallPreviewed"): CallState.PROPOSED,
    (CallState.ADMITTED, "CallPreviewed"): CallState.ADMITTED,
    (CallState.RETRYING, "CallPreviewed"): CallState.RETRYING,
    (CallState.PROPOSED, "CallAdmitted"): CallState.ADMITTED,
    (CallState.PROPOSED, "CallRefused"): CallState.REFUSED,
    (CallState.PROPOSED, "GateOpened:approval"): CallState.GATED,
    (CallState.PROPOSED, "GateOpened:question"): CallState.GATED,
    (CallState.GATED, "GateClosed"): CallState.CLOSED,
    # The call has changed since its approval: people are asked again.
    (CallState.ADMITTED, "GateOpened:approval"): CallState.GATED,
    (CallState.ADMITTED, "GateOpened:question"): CallState.GATED,
    # The approved call can no longer be made.
    (CallState.ADMITTED, "CallRefused"): CallState.REFUSED,
    (CallState.ADMITTED, "ToolStarted"): CallState.STARTED,
    (CallState.ADMITTED, "FrameOpened"): CallState.DELEGATED,
    (CallState.STARTED, "ToolReturned"): CallState.RETURNED,
    (CallState.STARTED, "ToolFailed"): CallState.FAILED,
    (CallState.STARTED, "RetryScheduled"): CallState.RETRYING,
    (CallState.STARTED, "OutcomeUnknown"): CallState.UNKNOWN,
    (CallState.RETRYING, "WaitEnded:again"): CallState.RETRYING,
    (CallState.RETRYING, "ToolStarted"): CallState.STARTED,
    (CallState.RETRYING, "GateOpened:approval"): CallState.GATED,
    (CallState.RETRYING, "GateOpened:question"): CallState.GATED,
    (CallState.RETRYING, "CallRefused"): CallState.REFUSED,
    (CallState.ADMITTED, "WaitStarted"): CallState.WAITING,
    (CallState.ADMITTED, "WaitEnded:refused"): CallState.FAILED,
    # The instance that performs the call has used its approval: now its outcome is awaited.
    (CallState.WAITING, "WaitStarted"): CallState.WAITING,
    (CallState.WAITING, "WaitEnded:arrived"): CallState.RETURNED,
    (CallState.WAITING, "WaitEnded:refused"): CallState.FAILED,  # the instance reported a failure
    (CallState.WAITING, "OutcomeUnknown"): CallState.UNKNOWN,  # the instance reported nothing
    (CallState.WAITING, "WaitEnded:timed_out"): CallState.RETURNED,
    (CallState.WAITING, "WaitEnded:closed"): CallState.CLOSED,
    (CallState.UNKNOWN, "GateOpened:in_doubt"): CallState.UNKNOWN,
    (CallState.UNKNOWN, "OutcomeArrived:returned"): CallState.RETURNED,
    (CallState.UNKNOWN, "OutcomeArrived:failed"): CallState.FAILED,
    (CallState.UNKNOWN, "GateClosed"): CallState.CLOSED,
    # The failed run is tried again: the call is checked again, or is in doubt if an attempt may have had its effect.
    (CallState.CLOSED, "Retried"): CallState.PROPOSED,
    (CallState.CLOSED, "Retried:in_doubt"): CallState.UNKNOWN,
    (CallState.DELEGATED, "FrameClosed:answered"): CallState.RETURNED,
    (CallState.DELEGATED, "FrameClosed:failed"): CallState.FAILED,
}


# A decision settles the gate of a call that has not started, or of one in doubt.
CALLS |= {
    (
        CallState.GATED if rule.gates & BEFORE_CALL else CallState.UNKNOWN,
        f"GateDecided:{verdict}",
    ): rule.call_becomes
    for verdict, rule in VERDICTS.items()
    if rule.call_becomes
}


def look_up_next_state(table: dict[tuple[S, str], S], state: S, trigger: str, *, subject: str) -> S:
    """Look up the next state. Raises IllegalTransition, which names machine, state, event and subject."""
    try:
        return table[state, trigger]
    except KeyError:
        raise IllegalTransition(type(state).__name__, state, trigger, subject) from None


def require_attempt(call: Call | Frame, attempt: int, expected: int) -> None:
    """Raise IllegalTransition unless the outcome belongs to the running attempt."""
    if attempt != expected:
        raise IllegalTransition(
            "Attempt", f"at attempt {call.attempt}", f"attempt {attempt}", call.id
        )
