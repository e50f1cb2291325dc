"""Finds a value approved before that another one resembles: the same look, or one character apart."""

from approvals.rules.argument_paths import ArgumentPath, Value, ValueKind
from approvals.rules.past_values import Past
from runtime.core.values.lookalikes import skeleton

MAX_LENGTH = 200  # characters of values that are compared
MIN_NEAR = 5  # characters of values that may differ in one, without the top domain: shorter ones do so by chance
MIN_REPEATED = 2  # past calls with a domain that another one may imitate


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
