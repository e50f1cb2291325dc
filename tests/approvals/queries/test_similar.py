"""Changes since the last similar approval that the reader may see, argument by argument."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.queries.similar import Change, Difference, compared
from runtime.keyring import sealing

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
ARGS = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


def _text(change: Change, side: str) -> str:
    return "".join(part.text for part in getattr(change, side))


@given(was=ARGS, now=ARGS)
def test_a_comparison_covers_both_sides_completely(
    was: dict[str, Any], now: dict[str, Any]
) -> None:
    changes = compared(was, now)
    assert {change.name for change in changes} == was.keys() | now.keys()
    for change in changes:
        expected = {
            (True, True): {Difference.SAME, Difference.CHANGED},
            (False, True): {Difference.ADDED},
            (True, False): {Difference.LEFT_OUT},
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
        (1, 1, Difference.SAME),
        (1, True, Difference.CHANGED),
        ("1", 1, Difference.CHANGED),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, Difference.SAME),
        ([1, 2], [2, 1], Difference.CHANGED),
        ({"$secret": "k:abc"}, {"$secret": "k:xyz"}, Difference.CHANGED),
    ],
)
def test_values_are_compared_as_json(was: Any, now: Any, difference: Difference) -> None:
    (change,) = compared({"value": was}, {"value": now})
    assert change.difference is difference


@pytest.mark.parametrize("was", ["plain", "sealed"])
def test_secrets_are_not_compared(was: str) -> None:
    def seal() -> dict[str, str]:
        return sealing.seal("swordfish", sealing.place("tool", "args", "value"))

    before = seal() if was == "sealed" else was
    secret = partial(sealing.secret_args, "tool")
    (change,) = compared({"value": before}, {"value": seal()}, secret=secret)
    assert change == Change(name="value", difference=Difference.HIDDEN, was=(), now=())


def test_the_words_that_differ_stand_apart() -> None:
    (change,) = compared({"note": "give access for a week"}, {"note": "give access for a year"})
    assert [part.text for part in change.was if part.changed] == ["week"]
    assert [part.text for part in change.now if part.changed] == ["year"]


def test_arguments_that_are_no_object_are_one() -> None:
    (change,) = compared([1], {"a": 1})
    assert (change.name, change.difference) == ("arguments", Difference.CHANGED)
