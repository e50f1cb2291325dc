"""Takes the arguments of a call apart into values, each at its place, so that calls of a tool can be compared.

A place is an argument, a part of one, the items of a list, or the domains of the addresses in a text.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from sys import float_info
from typing import Any, NamedTuple

MAX_VALUES = 500  # of one call; later ones are not compared
MAX_TEXT = 4_000  # characters of a text that are searched for addresses
WHOLE = "arguments"  # the name of arguments that are no object

_LARGE = 10**15  # beyond it a number is shortened
_ITEM = None  # the step from a list to its items
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?", re.ASCII)
# The host of an e-mail address or URL; a URL's user name before an @ is no host.
_ADDRESS = re.compile(r"(?:://(?:[^\s/?#@]*@)?|(?<=[^\s/@]@))((?:[\w-]+\.)+[\w-]{2,})")


class ValueKind(StrEnum):
    """The kind of a value, in the words that people read."""

    TEXT = "a text"
    NUMBER = "a number"
    WRITTEN = "a number written as text"
    BOOLEAN = "true or false"
    LIST = "a list"
    OBJECT = "an object"


class ArgumentPath(NamedTuple):
    """A place in the arguments of a tool."""

    path: tuple[str | None, ...]
    domain: bool = False

    @property
    def argument(self) -> str:
        """The name of the argument that has this place."""
        return str(self.path[0])

    @property
    def label(self) -> str:
        """The place in words: `amount`, `to.street`, `domain of to`."""
        text = ".".join(step for step in self.path if step is not _ITEM)
        return f"domain of {text}" if self.domain else text

    def is_below(self, other: "ArgumentPath") -> bool:
        """Tell whether this place is another's own, or a part of it."""
        return self.path[: len(other.path)] == other.path


class Value(NamedTuple):
    """A value as it is counted. `text` is what people read; `number` is None for values that are no number."""

    kind: ValueKind
    text: str
    number: float | None = None


def values(args: Any) -> dict[ArgumentPath, list[Value]]:
    """Return the values of a call at their places, at most MAX_VALUES. Null and empty lists are not given."""
    found: dict[ArgumentPath, list[Value]] = {}
    named = args if isinstance(args, dict) else {WHOLE: args}
    pairs = (pair for name, value in named.items() for pair in _walk((str(name),), value))
    for count, (place, value) in enumerate(pairs):
        if count >= MAX_VALUES:
            break
        found.setdefault(place, []).append(value)
    return found


def _walk(path: tuple[str | None, ...], value: Any) -> Iterator[tuple[ArgumentPath, Value]]:
    place = ArgumentPath(path)
    match value:
        case bool():
            yield place, Value(ValueKind.BOOLEAN, "true" if value else "false")
        case int() | float():
            yield place, _of_number(value)
        case str():
            yield from _of_text(place, value)
        case list() if value:
            yield place, Value(ValueKind.LIST, "")
            for item in value:
                yield from _walk((*path, _ITEM), item)
        case dict() if value:
            yield place, Value(ValueKind.OBJECT, "")
            for name, part in value.items():
                yield from _walk((*path, str(name)), part)


def _of_number(number: float) -> Value:
    if abs(number) <= float_info.max:
        return Value(ValueKind.NUMBER, number_text(number), float(number))
    return Value(
        ValueKind.TEXT, "a number that is too large"
    )  # only in a row that was tampered with


def _of_text(place: ArgumentPath, text: str) -> Iterator[tuple[ArgumentPath, Value]]:
    if _NUMBER.fullmatch(text):
        yield place, Value(ValueKind.WRITTEN, text, float(text))
        return
    yield place, Value(ValueKind.TEXT, text)
    hosts = dict.fromkeys(host.lower() for host in _ADDRESS.findall(text[:MAX_TEXT]))
    for host in hosts:
        yield ArgumentPath(place.path, domain=True), Value(ValueKind.TEXT, host)


def number_text(number: float) -> str:
    """Write a number with grouped digits and at most six decimals: `12,500`, `0.25`."""
    if abs(number) >= _LARGE:
        return f"{number:.3g}"
    if number == int(number):
        return f"{int(number):,}"
    text = f"{number:,.6f}".rstrip("0").rstrip(".")
    return f"{number:.3g}" if text in ("0", "-0") else text
