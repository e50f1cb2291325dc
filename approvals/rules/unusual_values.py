"""Finds odd values among the arguments of a call, compared with past calls of its tool. Pure.

`find` is the one function that decides it: for a request, for an edited action, in a batch. The module
`approvals.reads.usual` reads the past calls for it.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from statistics import quantiles
from typing import Any

from approvals.rules.argument_paths import (
    WHOLE,
    ArgumentPath,
    Value,
    ValueKind,
    number_text,
    values,
)
from approvals.rules.oddity import ORDER, Oddity, OddityKind, oddity, quoted
from approvals.rules.past_values import MIN_HISTORY, RARE_PERCENT, Past, PastValues
from runtime.core.values import lookalikes
from runtime.core.values import texts as invisible
from runtime.core.values.lookalikes import skeleton

FACTOR = 9  # times the end of the usual range; a wrong decimal point makes it about ten
MAX_TIMES = 1_000_000
_FENCE = 3
_MAX_EXP = 700  # beyond it a float overflows
_ROUNDING = 1e-9
_SKEWED = 0.15  # by Bowley: 0 is symmetrical, 1 is all on one side
MAX_CHARACTERS = 100_000  # of one call
MAX_NAMED = 3
_ORDINARY = frozenset("\t\r\n")  # in texts of several lines
_EMOJI_STYLE, _JOINER = "\ufe0f", "\u200d"
_KEYCAP = "\u20e3"
MAX_LENGTH = 200  # characters of values that are compared
MIN_NEAR = 5  # characters of values that may differ in one, without the top domain: shorter ones do so by chance
MIN_REPEATED = 2  # past calls with a domain that another one may imitate
MAX_OF_PLACE = 3  # odd items of a list that are named
_CONTAINERS = frozenset({ValueKind.LIST, ValueKind.OBJECT})
_NUMERIC = frozenset({ValueKind.NUMBER, ValueKind.WRITTEN})
MAX_CHOICES = 12  # different numbers that are a choice, such as levels, and no amounts


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


def find_out_of_range(place: ArgumentPath, value: Value, past: Past) -> Oddity | None:
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


def find_characters(args: Any, *, most: int = MAX_CHARACTERS) -> Iterator[Oddity]:
    """List the odd characters of each argument, within the first `most` characters of all."""
    named = args if isinstance(args, dict) else {WHOLE: args}
    for name, value in named.items():
        place = ArgumentPath((str(name),))
        texts = list(_cut(lookalikes.texts_of([name, value]), most))
        most -= sum(map(len, texts))
        hidden = dict.fromkeys(char for text in texts for char in _hidden(text))
        if hidden:
            told = ", ".join(
                f"{invisible.code_point(char)} {invisible.character_name(char)}"
                for char in list(hidden)[:MAX_NAMED]
            )
            more = f" and {len(hidden) - MAX_NAMED} more" if len(hidden) > MAX_NAMED else ""
            text = f"Contains invisible characters: {told}{more}."
            yield oddity(place, OddityKind.INVISIBLE, "invisible characters", text)
        for note in lookalikes.describe(texts, most=MAX_CHARACTERS):
            yield oddity(place, OddityKind.LETTERS, "look-alike letters", note)


def _cut(texts: Iterator[str], most: int) -> Iterator[str]:
    for text in texts:
        if most <= 0:
            return
        yield text[:most]
        most -= len(text)


def _hidden(text: str) -> Iterator[str]:
    if text.isascii() and text.isprintable():
        return
    for at, char in enumerate(text):
        if not invisible.is_visible(char) and char not in _ORDINARY and not _is_emoji(text, at):
            yield char


def _is_emoji(text: str, at: int) -> bool:
    """Tell whether this character only joins or styles emoji, as a keyboard writes them."""
    if text[at] == _EMOJI_STYLE:
        return _is_symbol(text[at - 1 : at]) or text[at + 1 : at + 2] == _KEYCAP
    before = text[:at].rstrip(_EMOJI_STYLE)[-1:] if text[at] == _JOINER else ""
    return _is_symbol(before) and _is_symbol(text[at + 1 : at + 2])


def _is_symbol(char: str) -> bool:
    return char != "" and unicodedata.category(char) in ("So", "Sk", "Sm")


def resembled(place: ArgumentPath, value: Value, past: Past) -> Value | None:
    """Return the most frequent past value that looks like this new one; None if there is none."""
    if value.kind is not ValueKind.TEXT or len(value.text) > MAX_LENGTH or value in past.counts:
        return None
    look = skeleton(value.text, host=place.domain)
    for seen, count in past.frequent:
        if seen.kind is not ValueKind.TEXT or len(seen.text) > MAX_LENGTH:
            continue
        if seen.text.casefold() == value.text.casefold():
            continue
        if skeleton(seen.text, host=place.domain) == look:
            return seen
        if place.domain:
            imitates = count >= MIN_REPEATED and _is_long(_stem(seen.text), _stem(value.text))
        else:
            imitates = past.repeats and _is_long(seen.text, value.text)
        if imitates and is_near(seen.text, value.text):
            return seen
    return None


def is_near(one: str, other: str) -> bool:
    """Tell whether two texts differ by one character: changed, added, left out, or swapped with the next."""
    if abs(len(one) - len(other)) > 1:
        return False
    shorter = min(len(one), len(other))
    start = next((n for n in range(shorter) if one[n] != other[n]), shorter)
    rest = shorter - start
    end = next((n for n in range(rest) if one[-1 - n] != other[-1 - n]), rest)
    left, right = one[start : len(one) - end], other[start : len(other) - end]
    return max(len(left), len(right)) == 1 or (len(left) == 2 and left == right[::-1])


def _stem(host: str) -> str:
    return host.rpartition(".")[0]


def _is_long(*texts: str) -> bool:
    return min(map(len, texts)) >= MIN_NEAR


def find(args: Any, history: PastValues, *, most: int = MAX_CHARACTERS) -> tuple[Oddity, ...]:
    """Return the odd values of a call, the oddest first. Without enough history, only odd characters are found.

    Odd characters are searched for in the first `most` characters.
    """
    found = list(find_characters(args, most=most))
    if history.is_enough:
        given = values(args)
        found += _of_given(given, history)
        found += _unset(given, history)
    return tuple(sorted(found, key=lambda one: one.weight))


def usual(argument: str, history: PastValues) -> str:
    """Say which values an argument usually has; empty if they always differ or are too few."""
    past = history.places.get(ArgumentPath((argument,)))
    if past is None or past.total < MIN_HISTORY:
        return ""
    if past.numbers and not _is_choice(past):
        return f"Usually {usual_range(past.numbers).text} (last {past.total})"
    if past.kinds <= _CONTAINERS or not past.repeats:
        return ""
    return f"Usually {_listed(past)} (last {past.total})" if past.usual else ""


def always_differs(argument: str, history: PastValues) -> bool:
    """Tell whether an argument nearly always has another value, as an id has."""
    place = ArgumentPath((argument,))
    inside = [
        past.always_differs
        for found, past in history.places.items()
        if found.is_below(place)
        and not found.domain
        and past.given >= MIN_HISTORY
        and not past.kinds <= _CONTAINERS
    ]
    return bool(inside) and all(inside)


def _of_given(given: dict[ArgumentPath, list[Value]], history: PastValues) -> Iterator[Oddity]:
    """Compare each given value. Of a text and the domains in it, only the odder one is reported."""
    new, told = list[ArgumentPath](), dict[ArgumentPath, list[Oddity]]()
    for place, found in given.items():
        past = history.places.get(place, Past())
        if any(place.is_below(one) for one in new):
            continue
        if not place.domain and _is_seldom(past.given, history.total):
            new.append(place)
            text = (
                f"Not given in {history.total - past.given} of the last {history.total} approvals."
            )
            kind = OddityKind.RARE if past.given else OddityKind.UNSEEN
            told[place] = [oddity(place, kind, "usually not given", text)]
        elif past.given >= MIN_HISTORY:
            odd = (_of_value(place, value, past) for value in dict.fromkeys(found))
            told[place] = [one for one in odd if one is not None][:MAX_OF_PLACE]
    for place, oddities in told.items():
        other = told.get(place._replace(domain=not place.domain))
        if not other or (_oddest(oddities), place.domain) < (_oddest(other), not place.domain):
            yield from oddities


def _oddest(oddities: list[Oddity]) -> int:
    return min((one.weight for one in oddities), default=len(ORDER))


def _of_value(place: ArgumentPath, value: Value, past: Past) -> Oddity | None:
    if value.kind not in past.kinds and not (
        value.kind is ValueKind.WRITTEN and ValueKind.TEXT in past.kinds
    ):
        kinds = " or ".join(sorted(past.kinds))
        text = f"This is {value.kind}; in the last {past.given} approvals it was {kinds}."
        return oddity(place, OddityKind.UNSEEN, f"{value.kind}, usually {kinds}", text)
    if value.kind in _CONTAINERS:
        return None
    if value.number is not None and past.kinds <= _NUMERIC:
        found = find_out_of_range(place, value, past)
        if found is not None or not _is_choice(past):
            return found
    like = resembled(place, value, past)
    if like is not None:
        text = (
            f"{quoted(value)} looks like {quoted(like)} of {past.counts[like]} earlier"
            f" approval{'' if past.counts[like] == 1 else 's'}, but differs from it."
        )
        return oddity(place, OddityKind.LOOK_ALIKE, f"looks like {quoted(like)}, but is not", text)
    return _of_share(place, value, past)


def _of_share(place: ArgumentPath, value: Value, past: Past) -> Oddity | None:
    count, usually = past.counts[value], f" Usually {_listed(past)}." if past.usual else ""
    if count == 0:
        if not past.repeats:
            return None
        text = f"{quoted(value)} is in none of the last {past.given} approvals.{usually}"
        return oddity(place, OddityKind.UNSEEN, f"{quoted(value)} is new", text)
    if not past.is_rare(value):
        return None
    text = f"{quoted(value)} is in {count} of the last {past.given} approvals.{usually}"
    short = f"{quoted(value)} is rare (below {RARE_PERCENT} %)"
    return oddity(place, OddityKind.RARE, short, text)


def _unset(given: dict[ArgumentPath, list[Value]], history: PastValues) -> Iterator[Oddity]:
    missing = list[ArgumentPath]()
    for place, past in history.places.items():
        if place.domain or place in given or any(place.is_below(one) for one in missing):
            continue
        parent = ArgumentPath(place.path[:-1])
        if len(place.path) > 1 and parent not in given:
            continue
        if _is_seldom(history.total - past.given, history.total):
            missing.append(place)
            text = f"Not given; given in {past.given} of the last {history.total} approvals."
            yield oddity(place, OddityKind.UNSET, "missing, usually given", text)


def _is_seldom(count: int, total: int) -> bool:
    return 100 * count < RARE_PERCENT * total


def _is_choice(past: Past) -> bool:
    """Tell whether these numbers are one of a few, such as levels."""
    return len(past.counts) <= MAX_CHOICES and past.repeats


def _listed(past: Past) -> str:
    names = [quoted(value) for value in past.usual]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
