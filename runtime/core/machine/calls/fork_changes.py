"""Changes a value in a fork for a person: an undelivered message, a result of the last turn, arguments, or a reply.

The value is marked as the person's. Arguments replace those of a call that has not started; the call keeps those that
its model proposed, and a person is always asked about it. A reply takes the place of the next one of a frame's model,
which is not called for it. A call that the original made is not made again.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from runtime.core.call_states import CallState
from runtime.core.continuation import Call, Continuation, Edited, Frame, FrameState, Undelivered
from runtime.core.events import Event, ForkChange, ModelReplied
from runtime.core.fast_replace import replace
from runtime.core.machine.calls.results import result_of

_MADE = frozenset({CallState.RETURNED, CallState.FAILED})
BEFORE_REPLY = frozenset({FrameState.ASKING, FrameState.RETRYING})
_AFTER_CALLS = BEFORE_REPLY | {FrameState.ACTING}


def changeable(now: Continuation) -> Iterator[tuple[ForkChange, Any]]:
    """Yield what a person may change in this first state of a fork, each with its present value: a reply has none."""
    for number, message in enumerate(now.unheard, 1):
        yield ForkChange(kind="message", number=number), message.text
    for frame in now.frames.values():
        if frame.state not in _AFTER_CALLS:
            continue
        if frame.state in BEFORE_REPLY:
            yield ForkChange(kind="reply", frame=frame.id), None
        for call in frame.of_turn():
            if _has_result(call):
                yield _part("result", frame, call), call.stored or call.result
            elif call.state is CallState.PROPOSED and isinstance(call.args, dict):
                yield _part("arguments", frame, call), call.args


def next_reply(events: Iterable[Event], frame: str) -> ModelReplied | None:
    """Return the first reply of this frame's model among these events. None if there is none."""
    for event in events:
        if isinstance(event, ModelReplied) and event.frame == frame:
            return event
    return None


def text_of(reply: ModelReplied) -> str:
    """Return the text of a reply; that of a typed answer is its JSON."""
    if reply.output is None:
        return reply.text
    return json.dumps(reply.output, ensure_ascii=False, indent=2)


def changed(now: Continuation, change: ForkChange, value: Any, by: str) -> Continuation:
    """Return the state with `value`, given by this person. The caller has found the change among the changeable.

    That of a reply is a GivenReply by the person.
    """
    if change.kind == "message":
        unheard = list(now.unheard)
        unheard[change.number - 1] = Undelivered(by=by, text=value)
        return replace(now, unheard=tuple(unheard))
    frame = now.frame(change.frame)
    if change.kind == "reply":
        asking = replace(frame, state=FrameState.ASKING, until=None, outage=None, given=value)
        return now.with_frame(asking)
    call = frame.find(change.call)
    if change.kind == "arguments":
        edited = Edited(by=by, proposed=call.proposed, in_fork=True)
        return now.with_frame(frame.with_call(replace(call, args=value, edited=edited)))
    call = replace(
        call,
        state=CallState.RETURNED,
        result=value,
        stored=None,
        reported_by=None,
        answered=False,
        verdict=None,
        changed_by=by,
    )
    return now.with_frame(_with_result(frame.with_call(call), call))


def _part(kind: Literal["result", "arguments"], frame: Frame, call: Call) -> ForkChange:
    return ForkChange(kind=kind, frame=frame.id, call=call.id)


def _has_result(call: Call) -> bool:
    """Tell whether a tool made the call and its result is a value for the model alone."""
    keeps_plan = call.terms is not None and call.terms.plan
    return call.state in _MADE and call.frame is None and not keeps_plan


def _with_result(frame: Frame, call: Call) -> Frame:
    """Replace the result among the frame's messages, where the turn has ended."""
    last = frame.messages[-1] if frame.messages else {}
    if last.get("role") != "results":
        return frame
    results = [result_of(call) if one["call"] == call.id else one for one in last["results"]]
    return replace(frame, messages=(*frame.messages[:-1], {**last, "results": results}))
