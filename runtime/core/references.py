"""References of a continuation to values that its run's journal has already.

`{"$": [7, 0, "result"]}` stands for the result of the first event of entry 7, `{"$": [6, 0, 1]}` for the arguments of
the second call of the reply there. A value that looks like a reference itself is wrapped: `{"$": {"is": …}}`. So
nothing that a model or a tool says can pass for one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runtime.core.continuation import Continuation, Frame
from runtime.core.errors import Unreadable
from runtime.core.events import Event, ModelReplied
from runtime.core.replacing import replace
from runtime.core.replay import Entry

_REFERENCE, _ITSELF = "$", "is"
_NAMES = ("input", "reply", "text", "output", "result", "content", "error", "reason", "summary")
_SHORT = 32  # characters of a text that is written out: a reference would not be shorter

Change = Callable[[Any], Any]
Place = tuple[int, int, str | int]


def referring(now: Continuation, entries: Mapping[int, Entry]) -> Continuation:
    """`now` with references in the place of values that it has in common with these entries of its run."""
    places = dict(_places(entries))

    def refer(value: Any) -> Any:
        place = places.get(id(value))
        if place is not None:
            return {_REFERENCE: place}
        return {_REFERENCE: {_ITSELF: value}} if _is_reference(value) else value

    return _changed(now, refer)


def resolved(now: Continuation, entry_of: Callable[[int], Entry]) -> Continuation:
    """`now` with the values that it refers to. Raises Unreadable for one that is not there."""

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


def _places(entries: Mapping[int, Entry]) -> Iterator[tuple[int, Place]]:
    """The identity of each long value, and its place. The entries keep the values alive."""
    for position, entry in entries.items():
        for index, event in enumerate(entry.events):
            for name, value in _values(event):
                if _is_long(value):
                    yield id(value), (position, index, name)


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) > _SHORT
    return isinstance(value, dict | list) and bool(value)


def _values(event: Event) -> Iterator[tuple[str | int, Any]]:
    for name in _NAMES:
        yield name, getattr(event, name, None)
    if isinstance(event, ModelReplied):
        yield from ((number, call.args) for number, call in enumerate(event.calls))


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
