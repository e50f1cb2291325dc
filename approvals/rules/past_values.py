"""Counts the values of past calls of a tool, and says how surprising another value is.

A new value is only odd where new values are rare. The share of values that were seen once estimates how often the next
one is new (Good and Turing, 1953), so ids, names and free texts, which always differ, are never called new.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from approvals.rules.argument_paths import ArgumentPath, Value, ValueKind, values

MIN_HISTORY = 10  # past values below which nothing is called unusual
RARE_PERCENT = 5  # a value with a smaller share is rare
MAX_SURPRISING = (
    10  # percent of past values that may be new or rare themselves where such a value is called odd
)
MAX_COMPARED = 200  # past values that each new one is compared with
LISTED = 3  # values named as the usual ones


@dataclass
class Past:
    """The past values at one place: the calls with a value there, and the calls with each value."""

    given: int = 0
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
    def kinds(self) -> frozenset[ValueKind]:
        """The kinds of the values, without exceptions: one text among numbers does not make a text usual."""
        kinds = Counter(value.kind for value in self.counts.elements())
        least = max(2, RARE_PERCENT * self.total / 100)
        return frozenset(kind for kind, count in kinds.items() if count >= least)

    @cached_property
    def numbers(self) -> list[float]:
        """The numbers, in order, if the values are numbers; otherwise none."""
        if not self.kinds <= {ValueKind.NUMBER, ValueKind.WRITTEN}:
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
        common = sorted(self.counts.items(), key=lambda one: (-one[1], one[0].number or 0, one[0]))
        return [value for value, count in common[:LISTED] if not self._is_rare(count)]

    @cached_property
    def _once(self) -> int:
        return sum(count == 1 for count in self.counts.values())

    def _is_rare(self, count: int) -> bool:
        return 100 * count < RARE_PERCENT * self.given


@dataclass(frozen=True, kw_only=True)
class PastValues:
    """Past calls of one tool: their number, and their values by place."""

    total: int
    places: dict[ArgumentPath, Past]

    @property
    def is_enough(self) -> bool:
        """Whether there are enough calls to call anything unusual."""
        return self.total >= MIN_HISTORY


def learn(calls: Iterable[Any]) -> PastValues:
    """Count the values of past calls, given as their arguments."""
    places: dict[ArgumentPath, Past] = {}
    total = 0
    for args in calls:
        total += 1
        for place, found in values(args).items():
            past = places.setdefault(place, Past())
            past.given += 1
            past.counts.update(dict.fromkeys(found, 1))
    return PastValues(total=total, places=places)
