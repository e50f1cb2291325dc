"""What differs from the last similar approval: argument by argument, and word by word within a bound."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.reads.similar import (
    MAX_EDITS,
    ArgumentDifference,
    ComparedArgument,
    compare_arguments,
    find_equal_blocks,
)
from runtime.keyring import sealing

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
ARGS = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


def _text(change: ComparedArgument, side: str) -> str:
    return "".join(part.text for part in getattr(change, side))


@given(was=ARGS, now=ARGS)
def test_a_comparison_covers_both_sides(was: dict[str, Any], now: dict[str, Any]) -> None:
    changes = compare_arguments(was, now)
    assert {change.name for change in changes} == was.keys() | now.keys()
    for change in changes:
        expected = {
            (True, True): {ArgumentDifference.SAME, ArgumentDifference.CHANGED},
            (False, True): {ArgumentDifference.ADDED},
            (True, False): {ArgumentDifference.LEFT_OUT},
        }[change.name in was, change.name in now]
        assert change.difference in expected
        common = [
            "".join(p.text for p in side if not p.changed) for side in (change.was, change.now)
        ]
        assert common[0] == common[1]
        for side, args in (("was", was), ("now", now)):
            if isinstance(args.get(change.name), str):
                assert _text(change, side) == args[change.name]


@pytest.mark.parametrize(
    ("was", "now", "difference"),
    [
        (1, 1, ArgumentDifference.SAME),
        (1, True, ArgumentDifference.CHANGED),
        ("1", 1, ArgumentDifference.CHANGED),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ArgumentDifference.SAME),
        ([1, 2], [2, 1], ArgumentDifference.CHANGED),
        ({"$secret": "k:abc"}, {"$secret": "k:xyz"}, ArgumentDifference.CHANGED),
    ],
)
def test_values_are_compared_as_json(was: Any, now: Any, difference: ArgumentDifference) -> None:
    (change,) = compare_arguments({"value": was}, {"value": now})
    assert change.difference is difference


@pytest.mark.parametrize("was", ["plain", "sealed"])
def test_secrets_are_not_compared(was: str) -> None:
    def seal() -> dict[str, str]:
        return sealing.seal("swordfish", sealing.encode_location("tool", "args", "value"))

    before = seal() if was == "sealed" else was
    secret = partial(sealing.list_secret_args, "tool")
    (change,) = compare_arguments({"value": before}, {"value": seal()}, secret=secret)
    assert change == ComparedArgument(
        name="value", difference=ArgumentDifference.HIDDEN, was=(), now=()
    )


def test_arguments_that_are_no_object_are_one() -> None:
    (change,) = compare_arguments([1], {"a": 1})
    assert (change.name, change.difference) == ("arguments", ArgumentDifference.CHANGED)


# Words


class Word(str):
    """Counts how often words are compared."""

    __slots__ = ()
    asked = 0

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Word.asked += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def _drawn(alphabet: str, count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [chance.choice(alphabet) for _ in range(count)]


@pytest.mark.parametrize("seed", range(60))
def test_shared_blocks_are_equal_and_as_long_as_possible(seed: int) -> None:
    old, new = _drawn("abc", seed % 17, seed), _drawn("abc", (seed * 7) % 19, seed + 1000)
    found = find_equal_blocks(old, new)
    assert found is not None
    a = b = 0
    for start, at, size in found:
        assert start >= a
        assert at >= b
        assert old[start : start + size] == new[at : at + size]
        a, b = start + size, at + size
    assert sum(size for _, _, size in found) == _longest(old, new)


def _longest(old: list[str], new: list[str]) -> int:
    row = [0] * (len(new) + 1)
    for one in old:
        before = row[:]
        for at, other in enumerate(new):
            row[at + 1] = before[at] + 1 if one == other else max(row[at], before[at + 1])
    return row[-1]


HOSTILE: dict[str, Callable[[int], list[str]]] = {
    "two words": lambda seed: _drawn("ab", 2_000, seed),
    "dots": lambda seed: _drawn(".,", 4_000, seed),
    "one word": lambda seed: ["-"] * (4_000 if seed == 1 else 2_500),
    "all other": lambda seed: [f"{seed}{n}" for n in range(2_000)],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts_cost_a_bounded_number_of_comparisons(kind: str) -> None:
    old, new = ([Word(one) for one in HOSTILE[kind](seed)] for seed in (1, 2))
    Word.asked = 0
    find_equal_blocks(old, new)
    assert Word.asked <= 2 * (MAX_EDITS + 1) * (len(old) + len(new))


def test_texts_that_are_too_different_are_shown_whole() -> None:
    old, new = (" ".join(_drawn("ab", 1_500, seed)) for seed in (1, 2))
    (change,) = compare_arguments({"to": old}, {"to": new})
    assert (change.difference, change.in_words) == (ArgumentDifference.CHANGED, False)
    assert [part.changed for part in change.now] == [True]
    assert change.text == new


def test_after_its_time_a_page_shows_the_rest_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr("approvals.reads.similar.monotonic", lambda: next(moments))
    was, now = {"a": "x 1", "b": "x 1", "c": "x 1"}, {"a": "x 2", "b": "x 2", "c": "x 2"}
    changes = compare_arguments(was, now, until=2.0)
    assert [change.in_words for change in changes] == [True, False, False]
    assert [change.text for change in changes] == ["x 2"] * 3
