"""Resolves references in a continuation of schema 6 to values in its run's entries. The release before wrote them.

`{"$": [7, 0, "result"]}` stands for the result of the first event of entry 7. `{"$": [6, 0, 1]}` stands for the
arguments of the second call of the reply there. A value that looks like a reference is wrapped: `{"$": {"is": …}}`.
So no value from a model or a tool can pass for one.
"""

from collections.abc import Callable
from typing import Any

from runtime.core.continuation import Continuation, Frame
from runtime.core.errors import Unreadable
from runtime.core.fast_replace import replace
from runtime.core.machine.replay import Entry

_REFERENCE, _ITSELF = "$", "is"

Change = Callable[[Any], Any]


def resolved(now: Continuation, entry_of: Callable[[int], Entry]) -> Continuation:
    """Return `now` with its references resolved. Raises Unreadable if a value is missing."""

    def resolve(value: Any) -> Any:
        return _value(value[_REFERENCE], entry_of) if _is_reference(value) else value

    return _changed(now, resolve)


def _value(place: Any, entry_of: Callable[[int], Entry]) -> Any:
    try:
        if isinstance(place, dict):
            return place[_ITSELF]
        position, index, name = place
        event: Any = entry_of(position).events[index]
        return event.calls[name].args if isinstance(name, int) else getattr(event, name)
    except (LookupError, AttributeError, TypeError, ValueError) as exc:
        raise Unreadable(f"there is nothing at {place!r}") from exc


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and _REFERENCE in value


def _changed(now: Continuation, change: Change) -> Continuation:
    return replace(
        now,
        input=change(now.input),
        outcome=change(now.outcome),
        frames={name: _frame(frame, change) for name, frame in now.frames.items()},
        left={name: _frame(frame, change) for name, frame in now.left.items()},
    )


def _frame(frame: Frame, change: Change) -> Frame:
    return replace(
        frame,
        messages=tuple(_message(message, change) for message in frame.messages),
        calls=tuple(
            replace(call, args=change(call.args), result=change(call.result))
            for call in frame.calls
        ),
        outcome=change(frame.outcome),
    )


def _message(message: dict[str, Any], change: Change) -> dict[str, Any]:
    return {
        name: [_fields(result, change) for result in value] if name == "results" else change(value)
        for name, value in message.items()
    }


def _fields(result: dict[str, Any], change: Change) -> dict[str, Any]:
    return {name: change(value) for name, value in result.items()}
