"""Finds numbers outside the range of the past ones, by Tukey's outer fences (Exploratory Data Analysis, 1977).

The fences lie three times the distance between the quartiles beyond these, so one wrong number that was approved does
not widen the usual range. Positive numbers with a long tail, such as row counts, are compared by their logarithms.
"""

from dataclasses import dataclass
from math import exp, log
from statistics import quantiles

from approvals.rules.argument_paths import ArgumentPath, Value, number_text
from approvals.rules.oddity import Oddity, OddityKind, oddity
from approvals.rules.past_values import RARE_PERCENT, Past

FACTOR = 9  # times the end of the usual range; a wrong decimal point makes it about ten
MAX_TIMES = 1_000_000
_FENCE = 3
_MAX_EXP = 700  # beyond it a float overflows
_ROUNDING = 1e-9
_SKEWED = 0.15  # by Bowley: 0 is symmetrical, 1 is all on one side


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
            return number_text(self.low)
        return f"{number_text(self.low)} to {number_text(self.high)}"


def usual_range(numbers: list[float]) -> Range:
    """Return the range of the numbers within the fences. There are at least two numbers, in order."""
    below, above = _fences(numbers)
    if numbers[0] > 0 and _skew(numbers) > _SKEWED:
        fences = _fences([log(number) for number in numbers])
        below, above = (exp(min(fence, _MAX_EXP)) for fence in fences)
    rounding = _ROUNDING * max(abs(numbers[0]), abs(numbers[-1]))
    below, above = below - rounding, above + rounding
    inside = [number for number in numbers if below <= number <= above] or numbers
    return Range(low=inside[0], high=inside[-1], below=below, above=above)


def _fences(numbers: list[float]) -> tuple[float, float]:
    first, _, third = quantiles(numbers, n=4, method="inclusive")
    return first - _FENCE * (third - first), third + _FENCE * (third - first)


def _skew(numbers: list[float]) -> float:
    first, middle, third = quantiles(numbers, n=4, method="inclusive")
    return (first + third - 2 * middle) / (third - first) if third > first else 0.0


def find(place: ArgumentPath, value: Value, past: Past) -> Oddity | None:
    """Return the oddity of a number; None if it is ordinary."""
    number, numbers = value.number, past.numbers
    if number is None or not numbers:
        return None
    usual = usual_range(numbers)
    if usual.low <= number <= usual.high or _is_common(number, usual, numbers):
        return None
    said = f"Usually {usual.text} (last {len(numbers)})"
    times = _times(number, usual)
    if times >= FACTOR:
        much = "times" if number > usual.high else "times less than"
        short = f"{_rounded(times)} {much} the usual value"
        text = f"{said}; this is {_rounded(times)} {much} that."
        return oddity(place, OddityKind.SCALE, short, text)
    if usual.below <= number <= usual.above and _sign(number) in map(_sign, numbers):
        return None
    text = f"{said}; this is {'higher' if number > usual.high else 'lower'}."
    return oddity(place, OddityKind.RANGE, f"{value.text}, usually {usual.text}", text)


def _is_common(number: float, usual: Range, numbers: list[float]) -> bool:
    """Tell whether past numbers as far out are no exception. A single one is."""
    beyond = sum(one >= number if number > usual.high else one <= number for one in numbers)
    return beyond >= 2 and 100 * beyond >= RARE_PERCENT * len(numbers)


def _times(number: float, usual: Range) -> float:
    """Return how many times the number is above the usual range, or below it; 0 if that has no meaning."""
    if number > usual.high > 0:
        return number / usual.high
    if 0 < number < usual.low:
        return usual.low / number
    return 0.0


def _rounded(times: float) -> str:
    """Round to what people say: 10, 15, 980, 12,000."""
    if times > MAX_TIMES:
        return f"more than {number_text(MAX_TIMES)}"
    digits = len(str(int(times)))
    return number_text(round(times, min(0, 2 - digits)))


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
