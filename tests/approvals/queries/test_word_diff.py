"""The bounded comparison of words: right for texts that are alike, and cheap for all others."""

import random
from collections.abc import Callable
from difflib import SequenceMatcher

import pytest

from approvals.queries.similar import Difference, compared
from approvals.queries.word_diff import MAX_EDITS, blocks, words


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
    found = blocks(old, new)
    assert found is not None
    a = b = 0
    for start, at, size in found:
        assert start >= a
        assert at >= b
        assert old[start : start + size] == new[at : at + size]
        a, b = start + size, at + size
    assert sum(size for _, _, size in found) == _longest(old, new)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    assert sum(size for _, _, size in found) >= sum(m.size for m in matcher.get_matching_blocks())


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
    blocks(old, new)
    assert Word.asked <= 2 * (MAX_EDITS + 1) * (len(old) + len(new))


def test_texts_that_are_too_different_are_shown_whole() -> None:
    old, new = (" ".join(_drawn("ab", 1_500, seed)) for seed in (1, 2))
    (change,) = compared({"to": old}, {"to": new})
    assert (change.difference, change.in_words) == (Difference.CHANGED, False)
    assert [part.changed for part in change.now] == [True]
    assert change.text == new


def test_after_its_time_a_page_shows_the_rest_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr("approvals.queries.similar.monotonic", lambda: next(moments))
    was, now = {"a": "x 1", "b": "x 1", "c": "x 1"}, {"a": "x 2", "b": "x 2", "c": "x 2"}
    changes = compared(was, now, until=2.0)
    assert [change.in_words for change in changes] == [True, False, False]
    assert [change.text for change in changes] == ["x 2"] * 3


def test_words_make_up_the_whole_text() -> None:
    text = " Pay  12.50 to\n\u0430-b "
    assert "".join(words(text)) == text
