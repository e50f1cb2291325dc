"""Finds unusual values among the arguments of a call, compared with past calls of its tool. Pure.

`find_unusual_values` alone decides it: for a request, for an edited action, in a batch. The module
`approvals.reads.usual` reads the past calls for it.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from approvals.rules.argument_values import (
    MIN_HISTORY,
    RARE_PERCENT,
    WHOLE,
    ArgumentPath,
    Past,
    PastValues,
    Value,
    ValueKind,
    compute_usual_range,
    format_number,
    read_values,
)
from runtime.core.values import lookalikes
from runtime.core.values.texts import find_hidden_marks, format_code_point, is_visible, name_char

MAX_CHARACTERS = 100_000  # of one call, in which hidden characters are searched
MAX_SHOWN = 80  # characters of a value in a sentence
MAX_NAMED = 3  # hidden characters of a value, or unusual items of a list
MAX_CHOICES = 12  # different numbers that are a choice, such as levels, and no amounts
FACTOR = 9  # times the end of the usual range; a wrong decimal point makes it about ten
MAX_TIMES = 1_000_000
MAX_LENGTH = 200  # characters of values that are compared by their look
MIN_NEAR = 5  # characters of values that may differ in one, without the top domain: shorter ones do so by chance
MIN_REPEATED = 2  # past calls with a domain that another one may imitate

_CONTAINERS = frozenset({ValueKind.LIST, ValueKind.OBJECT})
_NUMERIC = frozenset({ValueKind.NUMBER, ValueKind.WRITTEN})
_ORDINARY = frozenset("\t\r\n")  # in texts of several lines
_EMOJI_STYLE, _JOINER = "\ufe0f", "\u200d"
_KEYCAP = "\u20e3"


class UnusualKind(StrEnum):
    """The kinds of unusual values, the most alarming first."""

    LOOK_ALIKE = "look_alike"  # it resembles a value that was approved before, but is another
    INVISIBLE = "invisible"  # it holds characters that cannot be seen
    LETTERS = (
        "letters"  # it holds letters of other alphabets that look like Latin ones, or punycode
    )
    SCALE = "scale"  # a number that is a factor of ten or more from the usual ones
    RANGE = "range"  # a number outside the usual range
    UNSEEN = "unseen"  # a value that was never approved, where values repeat
    UNSET = "unset"  # not given, where it usually is
    RARE = "rare"  # below five percent of the approved values


ORDER = tuple(UnusualKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusualValue:
    """An unusual value of an argument. `short` is its text in a list, `text` next to the value."""

    argument: str
    kind: UnusualKind
    short: str
    text: str

    @property
    def weight(self) -> int:
        """The rank among the kinds; 0 comes first."""
        return ORDER.index(self.kind)

    @property
    def is_shown_elsewhere(self) -> bool:
        """Whether pages describe it at each value anyway, without a history."""
        return self.kind is UnusualKind.LETTERS


def find_unusual_values(
    args: Any, history: PastValues, *, limit: int = MAX_CHARACTERS
) -> tuple[UnusualValue, ...]:
    """Return the unusual values of a call, the most alarming first.

    Hidden characters are searched for in the first `limit` characters, and need no past calls.
    """
    unusual = list(find_unusual_characters(args, limit=limit))
    if history.is_enough:
        values_by_path = read_values(args)
        unusual += _compare_given_values(values_by_path, history)
        unusual += _find_unset_values(values_by_path, history)
    return tuple(sorted(unusual, key=lambda value: value.weight))


def describe_usual_values(argument: str, history: PastValues) -> str:
    """Say which values an argument usually has; empty if they always differ or are too few."""
    past = history.by_path.get(ArgumentPath((argument,)))
    if past is None or past.total < MIN_HISTORY:
        return ""
    if past.numbers and not _is_choice(past):
        return f"Usually {compute_usual_range(past.numbers).text} (last {past.total})"
    if past.usual_kinds <= _CONTAINERS or not past.repeats:
        return ""
    return f"Usually {_join_usual_values(past)} (last {past.total})" if past.usual else ""


def is_always_different(argument: str, history: PastValues) -> bool:
    """Tell whether an argument nearly always has another value, as an id has."""
    path = ArgumentPath((argument,))
    inside = [
        past.always_differs
        for below, past in history.by_path.items()
        if below.is_below(path)
        and not below.domain
        and past.calls >= MIN_HISTORY
        and not past.usual_kinds <= _CONTAINERS
    ]
    return bool(inside) and all(inside)


def _compare_given_values(
    values_by_path: Mapping[ArgumentPath, list[Value]], history: PastValues
) -> Iterator[UnusualValue]:
    """Compare each given value. Of a text and the domains in it, only the more unusual one is reported."""
    new, by_path = list[ArgumentPath](), dict[ArgumentPath, list[UnusualValue]]()
    for path, values in values_by_path.items():
        past = history.by_path.get(path, Past())
        if any(path.is_below(above) for above in new):
            continue
        if not path.domain and _is_seldom(past.calls, history.total):
            new.append(path)
            text = (
                f"Not given in {history.total - past.calls} of the last {history.total} approvals."
            )
            kind = UnusualKind.RARE if past.calls else UnusualKind.UNSEEN
            by_path[path] = [make_unusual_value(path, kind, "usually not given", text)]
        elif past.calls >= MIN_HISTORY:
            unusual = (_compare_value(path, value, past) for value in dict.fromkeys(values))
            by_path[path] = list(filter(None, unusual))[:MAX_NAMED]
    for path, unusual_values in by_path.items():
        other = by_path.get(path._replace(domain=not path.domain))
        if not other or (_compute_worst_weight(unusual_values), path.domain) < (
            _compute_worst_weight(other),
            not path.domain,
        ):
            yield from unusual_values


def _compute_worst_weight(unusual_values: list[UnusualValue]) -> int:
    return min((value.weight for value in unusual_values), default=len(ORDER))


def _compare_value(path: ArgumentPath, value: Value, past: Past) -> UnusualValue | None:
    if value.kind not in past.usual_kinds and not (
        value.kind is ValueKind.WRITTEN and ValueKind.TEXT in past.usual_kinds
    ):
        kinds = " or ".join(sorted(past.usual_kinds))
        text = f"This is {value.kind}; in the last {past.calls} approvals it was {kinds}."
        return make_unusual_value(path, UnusualKind.UNSEEN, f"{value.kind}, usually {kinds}", text)
    if value.kind in _CONTAINERS:
        return None
    if value.number is not None and past.usual_kinds <= _NUMERIC:
        unusual = find_unusual_number(path, value, past)
        if unusual is not None or not _is_choice(past):
            return unusual
    like = find_resembled(path, value, past)
    if like is not None:
        text = (
            f"{quote_value(value)} looks like {quote_value(like)} of {past.counts[like]} earlier"
            f" approval{'' if past.counts[like] == 1 else 's'}, but differs from it."
        )
        return make_unusual_value(
            path, UnusualKind.LOOK_ALIKE, f"looks like {quote_value(like)}, but is not", text
        )
    count, usually = (
        past.counts[value],
        f" Usually {_join_usual_values(past)}." if past.usual else "",
    )
    if count == 0:
        if not past.repeats:
            return None
        text = f"{quote_value(value)} is in none of the last {past.calls} approvals.{usually}"
        return make_unusual_value(path, UnusualKind.UNSEEN, f"{quote_value(value)} is new", text)
    if not past.is_rare(value):
        return None
    text = f"{quote_value(value)} is in {count} of the last {past.calls} approvals.{usually}"
    short = f"{quote_value(value)} is rare (below {RARE_PERCENT} %)"
    return make_unusual_value(path, UnusualKind.RARE, short, text)


def _find_unset_values(
    values_by_path: Mapping[ArgumentPath, list[Value]], history: PastValues
) -> Iterator[UnusualValue]:
    missing = list[ArgumentPath]()
    for path, past in history.by_path.items():
        if path.domain or path in values_by_path or any(path.is_below(above) for above in missing):
            continue
        parent = ArgumentPath(path.steps[:-1])
        if len(path.steps) > 1 and parent not in values_by_path:
            continue
        if _is_seldom(history.total - past.calls, history.total):
            missing.append(path)
            text = f"Not given; given in {past.calls} of the last {history.total} approvals."
            yield make_unusual_value(path, UnusualKind.UNSET, "missing, usually given", text)


def _is_seldom(count: int, total: int) -> bool:
    return 100 * count < RARE_PERCENT * total


def _is_choice(past: Past) -> bool:
    """Tell whether these numbers are one of a few, such as levels."""
    return len(past.counts) <= MAX_CHOICES and past.repeats


def _join_usual_values(past: Past) -> str:
    names = [quote_value(value) for value in past.usual]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def find_unusual_number(path: ArgumentPath, value: Value, past: Past) -> UnusualValue | None:
    """Compare a number with the usual range. Return None if it is ordinary."""
    number, numbers = value.number, past.numbers
    if number is None or not numbers:
        return None
    usual = compute_usual_range(numbers)
    if usual.low <= number <= usual.high:
        return None
    beyond = sum(past >= number if number > usual.high else past <= number for past in numbers)
    if beyond >= 2 and 100 * beyond >= RARE_PERCENT * len(numbers):
        return None
    usually = f"Usually {usual.text} (last {len(numbers)})"
    times = 0.0  # how many times above the usual range, or below it, where that has a meaning
    if number > usual.high > 0:
        times = number / usual.high
    elif 0 < number < usual.low:
        times = usual.low / number
    if times >= FACTOR:
        much = "times" if number > usual.high else "times less than"
        short = f"{_round_times(times)} {much} the usual value"
        text = f"{usually}; this is {_round_times(times)} {much} that."
        return make_unusual_value(path, UnusualKind.SCALE, short, text)
    if usual.below <= number <= usual.above and _sign(number) in map(_sign, numbers):
        return None
    text = f"{usually}; this is {'higher' if number > usual.high else 'lower'}."
    return make_unusual_value(path, UnusualKind.RANGE, f"{value.text}, usually {usual.text}", text)


def _round_times(times: float) -> str:
    """Round to what people say: 10, 15, 980, 12,000."""
    if times > MAX_TIMES:
        return f"more than {format_number(MAX_TIMES)}"
    digits = len(str(int(times)))
    return format_number(round(times, min(0, 2 - digits)))


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def find_resembled(path: ArgumentPath, value: Value, past: Past) -> Value | None:
    """Return the most frequent past value that looks like this new one or differs in one character."""
    if value.kind is not ValueKind.TEXT or len(value.text) > MAX_LENGTH or value in past.counts:
        return None
    look = lookalikes.compute_skeleton(value.text, host=path.domain)
    for earlier, count in past.frequent:
        if earlier.kind is not ValueKind.TEXT or len(earlier.text) > MAX_LENGTH:
            continue
        if earlier.text.casefold() == value.text.casefold():
            continue
        if lookalikes.compute_skeleton(earlier.text, host=path.domain) == look:
            return earlier
        if path.domain:
            imitates = count >= MIN_REPEATED and _is_long(
                _strip_top_domain(earlier.text), _strip_top_domain(value.text)
            )
        else:
            imitates = past.repeats and _is_long(earlier.text, value.text)
        if imitates and is_near(earlier.text, value.text):
            return earlier
    return None


def is_near(text: str, other: str) -> bool:
    """Tell whether two texts differ by one character: changed, added, left out, or swapped with the next."""
    if abs(len(text) - len(other)) > 1:
        return False
    shorter = min(len(text), len(other))
    start = next((n for n in range(shorter) if text[n] != other[n]), shorter)
    after = shorter - start
    end = next((n for n in range(after) if text[-1 - n] != other[-1 - n]), after)
    first, second = text[start : len(text) - end], other[start : len(other) - end]
    return max(len(first), len(second)) == 1 or (len(first) == 2 and first == second[::-1])


def _strip_top_domain(host: str) -> str:
    return host.rpartition(".")[0]


def _is_long(*texts: str) -> bool:
    return min(map(len, texts)) >= MIN_NEAR


def find_unusual_characters(args: Any, *, limit: int) -> Iterator[UnusualValue]:
    """List characters that are invisible, or look like others, within the first `limit` characters of all arguments."""
    arguments = args if isinstance(args, dict) else {WHOLE: args}
    for name, value in arguments.items():
        path = ArgumentPath((str(name),))
        texts = list(_cut(lookalikes.collect_texts([name, value]), limit))
        limit -= sum(map(len, texts))
        hidden = dict.fromkeys(char for text in texts for char in _list_hidden_characters(text))
        if hidden:
            names = ", ".join(
                f"{format_code_point(char)} {name_char(char)}" for char in list(hidden)[:MAX_NAMED]
            )
            suffix = f" and {len(hidden) - MAX_NAMED} more" if len(hidden) > MAX_NAMED else ""
            text = f"Contains invisible characters: {names}{suffix}."
            yield make_unusual_value(path, UnusualKind.INVISIBLE, "invisible characters", text)
        for note in lookalikes.describe(texts, limit=MAX_CHARACTERS):
            yield make_unusual_value(path, UnusualKind.LETTERS, "look-alike letters", note)


def _cut(texts: Iterator[str], limit: int) -> Iterator[str]:
    for text in texts:
        if limit <= 0:
            return
        yield text[:limit]
        limit -= len(text)


def _list_hidden_characters(text: str) -> Iterator[str]:
    if text.isascii() and text.isprintable():
        return
    marks = find_hidden_marks(text)
    for at, char in enumerate(text):
        is_odd = not is_visible(char) and char not in _ORDINARY and not _is_emoji(text, at)
        if is_odd or at in marks:
            yield char


def _is_emoji(text: str, at: int) -> bool:
    """Tell whether this character only joins or styles emoji, as a keyboard writes them."""
    if text[at] == _EMOJI_STYLE:
        return _is_symbol(text[at - 1 : at]) or text[at + 1 : at + 2] == _KEYCAP
    before = text[:at].rstrip(_EMOJI_STYLE)[-1:] if text[at] == _JOINER else ""
    return _is_symbol(before) and _is_symbol(text[at + 1 : at + 2])


def _is_symbol(char: str) -> bool:
    return char != "" and unicodedata.category(char) in ("So", "Sk", "Sm")


def make_unusual_value(
    path: ArgumentPath, kind: UnusualKind, short: str, text: str
) -> UnusualValue:
    """Make the unusual value at a path; inside an argument, its text begins with the path."""
    within = path.label if len(path.steps) > 1 or path.domain else ""
    return UnusualValue(
        argument=path.argument,
        kind=kind,
        short=f"{path.label}: {short}",
        text=f"{within}: {text}" if within else text,
    )


def quote_value(value: Value) -> str:
    """Return a number as it is, and quote any other value, cut to MAX_SHOWN characters."""
    text = value.text
    if value.number is not None:
        return text
    return f"\u201c{text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + '…'}\u201d"
