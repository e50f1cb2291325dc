"""Finds odd values among the arguments of a call, compared with past calls of its tool. Pure.

`find` is the one function that decides it: for a request, for an edited action, in a batch. The module
`approvals.reads.usual` reads the past calls for it.
"""

from collections.abc import Iterator
from typing import Any

from approvals.rules import characters, ranges, resemblance
from approvals.rules.argument_paths import ArgumentPath, Value, ValueKind, values
from approvals.rules.oddity import ORDER, Oddity, OddityKind, oddity, quoted
from approvals.rules.past_values import MIN_HISTORY, RARE_PERCENT, Past, PastValues

MAX_OF_PLACE = 3  # odd items of a list that are named
_CONTAINERS = frozenset({ValueKind.LIST, ValueKind.OBJECT})
_NUMERIC = frozenset({ValueKind.NUMBER, ValueKind.WRITTEN})
MAX_CHOICES = 12  # different numbers that are a choice, such as levels, and no amounts


def find(
    args: Any, history: PastValues, *, most: int = characters.MAX_CHARACTERS
) -> tuple[Oddity, ...]:
    """Return the odd values of a call, the oddest first. Without enough history, only odd characters are found.

    Odd characters are searched for in the first `most` characters.
    """
    found = list(characters.find(args, most=most))
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
        return f"Usually {ranges.usual_range(past.numbers).text} (last {past.total})"
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
        found = ranges.find(place, value, past)
        if found is not None or not _is_choice(past):
            return found
    like = resemblance.resembled(place, value, past)
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
