"""Takes the arguments of calls apart into values, and counts those of past calls of a tool.

A value is at a path: an argument, a part of one, the items of a list, or the domains of the addresses in a text.

A new value is unusual only where new values are rare. The share of values that were seen once estimates how often the
next one is new (Good and Turing, 1953), so ids, names and free texts, which always differ, are never called new.

Numbers are compared with the range of the past ones by Tukey's outer fences (Exploratory Data Analysis, 1977). These
lie three times the distance between the quartiles beyond them, so one wrong number that was approved does not widen the
usual range. Positive numbers with a long tail, such as row counts, are compared by their logarithms.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import exp, log
from statistics import quantiles
from sys import float_info
from typing import Any, NamedTuple

MAX_VALUES = 500  # of one call; later ones are not compared
MAX_TEXT = 4_000  # characters of a text that are searched for addresses
WHOLE = "arguments"  # the name of arguments that are no object
MIN_HISTORY = 10  # past values below which nothing is called unusual
RARE_PERCENT = 5  # a value with a smaller share is rare
# Percent of past values that may be new or rare themselves where such a value is called unusual.
MAX_SURPRISING = 10
MAX_COMPARED = 200  # past values that each new one is compared with
LISTED = 3  # values named as the usual ones

_LARGE = 10**15  # beyond it a number is shortened
_ITEM = None  # the step from a list to its items
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?", re.ASCII)
# The host of an e-mail address or URL; a URL's user name before an @ is no host.
_ADDRESS = re.compile(r"(?:://(?:[^\s/?#@]*@)?|(?<=[^\s/@]@))((?:[\w-]+\.)+[\w-]{2,})")
_FENCE = 3
_MAX_EXP = 700  # beyond it a float overflows
_ROUNDING = 1e-9
_SKEWED = 0.15  # by Bowley: 0 is symmetrical, 1 is all on one side


class ValueKind(StrEnum):
    """The kind of a value, in the words that people read."""

    TEXT = "a text"
    NUMBER = "a number"
    WRITTEN = "a number written as text"
    BOOLEAN = "true or false"
    LIST = "a list"
    OBJECT = "an object"


class ArgumentPath(NamedTuple):
    """A path into the arguments of a tool."""

    steps: tuple[str | None, ...]
    domain: bool = False

    @property
    def argument(self) -> str:
        """The name of the argument."""
        return str(self.steps[0])

    @property
    def label(self) -> str:
        """The path in words: `amount`, `to.street`, `domain of to`."""
        text = ".".join(step for step in self.steps if step is not _ITEM)
        return f"domain of {text}" if self.domain else text

    def is_below(self, other: "ArgumentPath") -> bool:
        """Tell whether this path is the other one, or leads into it."""
        return self.steps[: len(other.steps)] == other.steps


class Value(NamedTuple):
    """A value as it is counted. `text` is what people read; `number` is None for values that are no number."""

    kind: ValueKind
    text: str
    number: float | None = None


def read_values(args: Any) -> dict[ArgumentPath, list[Value]]:
    """Return the values of a call by path, at most MAX_VALUES. Null and empty lists are not given."""
    by_path: dict[ArgumentPath, list[Value]] = {}
    arguments = args if isinstance(args, dict) else {WHOLE: args}
    pairs = (pair for name, value in arguments.items() for pair in _walk((str(name),), value))
    for count, (path, value) in enumerate(pairs):
        if count >= MAX_VALUES:
            break
        by_path.setdefault(path, []).append(value)
    return by_path


def _walk(steps: tuple[str | None, ...], value: Any) -> Iterator[tuple[ArgumentPath, Value]]:
    path = ArgumentPath(steps)
    match value:
        case bool():
            yield path, Value(ValueKind.BOOLEAN, "true" if value else "false")
        case int() | float():
            if abs(value) <= float_info.max:
                yield path, Value(ValueKind.NUMBER, format_number(value), float(value))
            else:  # only in a row that was tampered with
                yield path, Value(ValueKind.TEXT, "a number that is too large")
        case str():
            yield from _read_text_values(path, value)
        case list() if value:
            yield path, Value(ValueKind.LIST, "")
            for item in value:
                yield from _walk((*steps, _ITEM), item)
        case dict() if value:
            yield path, Value(ValueKind.OBJECT, "")
            for name, inner in value.items():
                yield from _walk((*steps, str(name)), inner)


def _read_text_values(path: ArgumentPath, text: str) -> Iterator[tuple[ArgumentPath, Value]]:
    if _NUMBER.fullmatch(text):
        yield path, Value(ValueKind.WRITTEN, text, float(text))
        return
    yield path, Value(ValueKind.TEXT, text)
    hosts = dict.fromkeys(host.lower() for host in _ADDRESS.findall(text[:MAX_TEXT]))
    for host in hosts:
        yield ArgumentPath(path.steps, domain=True), Value(ValueKind.TEXT, host)


def format_number(number: float) -> str:
    """Write a number with grouped digits and at most six decimals: `12,500`, `0.25`."""
    if abs(number) >= _LARGE:
        return f"{number:.3g}"
    if number == int(number):
        return f"{int(number):,}"
    text = f"{number:,.6f}".rstrip("0").rstrip(".")
    return f"{number:.3g}" if text in ("0", "-0") else text


@dataclass
class Past:
    """The past values at one path: the calls with a value there, and the calls with each value."""

    calls: int = 0
    counts: Counter[Value] = field(default_factory=Counter)

    @cached_property
    def total(self) -> int:
        """The number of values; a call counts each of its values once."""
        return self.counts.total()

    @cached_property
    def frequent(self) -> list[tuple[Value, int]]:
        """The values with their counts that a new one is compared with, the most frequent first."""
        return self.counts.most_common(MAX_COMPARED)

    @cached_property
    def usual_kinds(self) -> frozenset[ValueKind]:
        """The kinds of the values, without exceptions: one text among numbers does not make a text usual."""
        kinds = Counter(value.kind for value in self.counts.elements())
        least = max(2, RARE_PERCENT * self.total / 100)
        return frozenset(kind for kind, count in kinds.items() if count >= least)

    @cached_property
    def numbers(self) -> list[float]:
        """The numbers, in order, if the values are numbers; otherwise none."""
        if not self.usual_kinds <= {ValueKind.NUMBER, ValueKind.WRITTEN}:
            return []
        return sorted(v.number for v in self.counts.elements() if v.number is not None)

    @cached_property
    def always_differs(self) -> bool:
        """Whether most values were seen once, as ids are."""
        return 2 * self._once > self.total

    @cached_property
    def repeats(self) -> bool:
        """Whether a new value would be rare here."""
        return 100 * self._once <= MAX_SURPRISING * self.total

    @cached_property
    def is_concentrated(self) -> bool:
        """Whether a rare value would be rare here: there are few of them."""
        rare = sum(count for count in self.counts.values() if self._is_rare(count))
        return 100 * rare <= MAX_SURPRISING * self.total

    def is_rare(self, value: Value) -> bool:
        """Tell whether the value is one of few rare ones."""
        return self._is_rare(self.counts[value]) and self.is_concentrated

    @cached_property
    def usual(self) -> list[Value]:
        """The most frequent values that are not rare."""
        common = sorted(
            self.counts.items(), key=lambda pair: (-pair[1], pair[0].number or 0, pair[0])
        )
        return [value for value, count in common[:LISTED] if not self._is_rare(count)]

    @cached_property
    def _once(self) -> int:
        return sum(count == 1 for count in self.counts.values())

    def _is_rare(self, count: int) -> bool:
        return 100 * count < RARE_PERCENT * self.calls


@dataclass(frozen=True, kw_only=True)
class PastValues:
    """Past calls of one tool: their number, and their values by path."""

    total: int
    by_path: dict[ArgumentPath, Past]

    @property
    def is_enough(self) -> bool:
        """Whether there are enough calls to call anything unusual."""
        return self.total >= MIN_HISTORY


def learn(calls: Iterable[Any]) -> PastValues:
    """Count the values of past calls, given as their arguments."""
    by_path: dict[ArgumentPath, Past] = {}
    total = 0
    for args in calls:
        total += 1
        for path, values in read_values(args).items():
            past = by_path.setdefault(path, Past())
            past.calls += 1
            past.counts.update(dict.fromkeys(values, 1))
    return PastValues(total=total, by_path=by_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The usual range of past numbers, and the fences around it."""

    low: float
    high: float
    below: float
    above: float

    @property
    def text(self) -> str:
        """The range in words."""
        if self.low == self.high:
            return format_number(self.low)
        return f"{format_number(self.low)} to {format_number(self.high)}"


def compute_usual_range(numbers: list[float]) -> Range:
    """Return the range of the numbers within the fences. There are at least two numbers, in order."""
    below, above = _compute_fences(numbers)
    if numbers[0] > 0 and _compute_skew(numbers) > _SKEWED:
        fences = _compute_fences([log(number) for number in numbers])
        below, above = (exp(min(fence, _MAX_EXP)) for fence in fences)
    rounding = _ROUNDING * max(abs(numbers[0]), abs(numbers[-1]))
    below, above = below - rounding, above + rounding
    inside = [number for number in numbers if below <= number <= above] or numbers
    return Range(low=inside[0], high=inside[-1], below=below, above=above)


def _compute_fences(numbers: list[float]) -> tuple[float, float]:
    first, _, third = quantiles(numbers, n=4, method="inclusive")
    return first - _FENCE * (third - first), third + _FENCE * (third - first)


def _compute_skew(numbers: list[float]) -> float:
    first, middle, third = quantiles(numbers, n=4, method="inclusive")
    return (first + third - 2 * middle) / (third - first) if third > first else 0.0
