"""Inquiries of people about a call that waits at a gate, which the agent's model answers outside of its conversation.

An inquiry ends with its answer, with a failure, or with its gate. Neither it nor its answer becomes a message of the
frame, so it cannot change what the agent does: the person who asks may still decide.
"""

from typing import Any
from uuid import UUID

from runtime.core.budgets import added
from runtime.core.call_states import SETTLED
from runtime.core.continuation import Continuation, Frame, Inquiry, Phase
from runtime.core.errors import IllegalTransition, UnknownSubject
from runtime.core.events import AnswerDropped, InquiryEvent, QuestionAnswered, QuestionAsked
from runtime.core.fast_replace import replace
from runtime.core.machine.calls.results import result_of

WAITING = "waiting"  # outcome of a call of the turn that has no result yet
QUESTION = "question"  # role of the last message of the request, by the older word


def evolve_inquiry(now: Continuation, event: InquiryEvent) -> Continuation:
    """Return the continuation after an event of an inquiry. Raises IllegalTransition or UnknownSubject."""
    if isinstance(event, AnswerDropped) and now.phase in (Phase.STARTED, Phase.CANCELLING):
        return _used(now, event)
    if now.phase is not Phase.STARTED:
        raise IllegalTransition(type(now.phase).__name__, now.phase, event.type, str(now.run))
    if isinstance(event, QuestionAsked):
        return _asked(now, event)
    left = tuple(one for one in now.questions if one.id != event.question)
    if len(left) == len(now.questions):
        raise UnknownSubject("open question", str(event.question))
    now = replace(now, questions=left)
    return _used(now, event) if isinstance(event, QuestionAnswered) else now


def open_inquiry(now: Continuation, inquiry: UUID) -> Inquiry | None:
    """Return the inquiry if it has no answer yet and its gate is open, else None."""
    return next((one for one in now.questions if one.id == inquiry), None)


def conversation(frame: Frame, inquiry: Inquiry) -> Frame:
    """Return the frame with the messages that its model gets with the inquiry: results so far, then the inquiry."""
    results = [
        result_of(call)
        if call.state in SETTLED
        else {"call": call.id, "tool": call.tool, "outcome": WAITING, "content": ""}
        for call in frame.of_turn()
    ]
    tool = frame.find(inquiry.call).tool
    asked: dict[str, Any] = {
        "role": QUESTION,
        "by": inquiry.by,
        "content": inquiry.text,
        "tool": tool,
        "call": inquiry.call,
    }
    more = ({"role": "results", "results": results}, asked)
    return replace(frame, messages=frame.messages + more)


def _used(now: Continuation, event: QuestionAnswered | AnswerDropped) -> Continuation:
    return replace(now, usage=added(now.usage, event.usage))


def _asked(now: Continuation, event: QuestionAsked) -> Continuation:
    place = (event.gate, event.frame, event.call)
    if all((one.gate, one.frame, one.call) != place for one in now.pending):
        raise UnknownSubject("open gate", str(event.gate))
    inquiry = Inquiry(
        id=event.question,
        gate=event.gate,
        frame=event.frame,
        call=event.call,
        by=event.by,
        text=event.text,
    )
    return replace(now, questions=(*now.questions, inquiry))
