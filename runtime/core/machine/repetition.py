"""Finds a model that repeats itself: the same calls with the same results, reply after reply.

The text beside the calls may differ, since a model words the same step anew. So may the error of a call, which often
names a time or a request. A result that differs, a wait that ended, a message of a person and a summary are news for
the model: after them the count begins again.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from runtime.core.call_states import CallState
from runtime.core.continuation import MAX_SAME_REPLIES, Call, Continuation, Frame
from runtime.core.machine.messages import undelivered_to


def is_stuck(now: Continuation, frame: Frame) -> bool:
    """Say whether people must be asked before the frame's next model call: it has repeated itself too often.

    A person who lets the frame continue allows as many replies again.
    """
    if frame.turn - max(frame.cleared, 0) < MAX_SAME_REPLIES or undelivered_to(now, frame.id):
        return False
    return count_repeats(frame) >= MAX_SAME_REPLIES


def count_repeats(frame: Frame) -> int:
    """Count the last replies in a row that made the same calls with the same results."""
    messages = frame.messages
    turns = (_turn(frame, messages[end - 2 : end]) for end in range(len(messages), 1, -2))
    last = next(turns, None)
    if last is None:
        return 0
    return 1 + sum(1 for _ in takewhile(lambda turn: turn == last, turns))


def _turn(frame: Frame, messages: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]] | None:
    """Return the calls of a turn and their results, None if it is not a turn or a call of it waited."""
    if [message["role"] for message in messages] != ["model", "results"]:
        return None
    results = messages[1]["results"]
    calls = [frame.find(result["call"]) for result in results]
    if any(map(_has_waited, calls)):
        return None
    return [
        (call.tool, call.proposed, _without_error(result))
        for call, result in zip(calls, results, strict=True)
    ]


def _has_waited(call: Call) -> bool:
    return call.terms is not None and bool(call.terms.waits) and call.state is CallState.RETURNED


def _without_error(result: dict[str, Any]) -> dict[str, Any]:
    ignored = ("call",) if result["outcome"] == CallState.RETURNED else ("call", "content")
    return {name: value for name, value in result.items() if name not in ignored}
