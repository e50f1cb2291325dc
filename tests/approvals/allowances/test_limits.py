"""The arguments of a call are compared with the limits of an allowance, value by value."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.rules import allowance_terms as matching
from approvals.rules.allowance_terms import ArgumentLimit, LimitRule

ARGS = {"to": {"id": 7, "name": "Ann"}, "euros": 40, "text": "40.00", "tags": ["a"]}
FITS = {
    "to.id": (LimitRule.EQUALS, 7),
    "to.name": (LimitRule.ONE_OF, "Bob", "Ann"),
    "euros": (LimitRule.BETWEEN, 0, 50),
    "text": (LimitRule.AT_MOST, "50"),
    "tags": (LimitRule.EQUALS, ["a"]),
}


def limits(**changed: tuple[Any, ...]) -> list[ArgumentLimit]:
    given = {**FITS, **{name.replace("__", "."): value for name, value in changed.items()}}
    return [
        ArgumentLimit(path=tuple(name.split(".")), rule=rule, values=tuple(values))
        for name, (rule, *values) in given.items()
    ]


def test_a_call_within_every_limit_matches() -> None:
    assert matching.find_mismatch(limits(), ARGS) is None


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"euros": 51}, "euros is not"),
        ({"euros": -1}, "euros is not"),
        ({"euros": True}, "euros is not"),
        ({"euros": "40"}, "euros is not"),
        ({"euros": float("nan")}, "euros is not"),
        ({"euros": None}, "euros is not"),
        ({"text": 40}, "text is not"),
        ({"text": "4e1"}, "text is not"),
        ({"text": "٤٠"}, "text is not"),
        ({"text": "1_0"}, "text is not"),
        ({"to": {"id": 7.5, "name": "Ann"}}, "to.id is not"),
        ({"to": {"id": "7", "name": "Ann"}}, "to.id is not"),
        ({"to": {"id": 7, "name": "ann"}}, "to.name is not"),
        ({"to": {"id": 7}}, "to.name is missing"),
        ({"to": None}, "to has no limit"),
        ({"to": {}}, "to has no limit"),
        ({"to": {"id": 7, "name": "Ann", "cc": "Eve"}}, "to.cc has no limit"),
        ({"to.id": 7}, "to.id has no limit"),
        ({"tags": ["a", "b"]}, "tags is not"),
        ({"tags": []}, "tags is not"),
        ({"more": 1}, "more has no limit"),
    ],
)
def test_another_call_does_not(changed: dict[str, Any], named: str) -> None:
    assert str(matching.find_mismatch(limits(), {**ARGS, **changed})).startswith(named)


def test_an_argument_with_any_value_may_be_missing_or_anything() -> None:
    free = limits(tags=(LimitRule.ANY,))
    assert matching.find_mismatch(free, {**ARGS, "tags": None}) is None
    assert (
        matching.find_mismatch(free, {name: ARGS[name] for name in ARGS if name != "tags"}) is None
    )
    assert matching.find_mismatch(free, {**ARGS, "tags": {"a": 1}}) == "tags.a has no limit"
    assert matching.find_mismatch(free, ["not", "an", "object"])


@pytest.mark.parametrize(
    ("rule", "values", "said"),
    [
        (LimitRule.EQUALS, (), "needs 1 value"),
        (LimitRule.ONE_OF, (), "needs at least one value"),
        (LimitRule.ANY, (1,), "takes no value"),
        (LimitRule.BETWEEN, (1,), "needs 2 values"),
        (LimitRule.BETWEEN, (2, 1), "needs the lower number first"),
        (LimitRule.BETWEEN, (1, "2"), "needs two numbers, or two numbers as text"),
        (LimitRule.AT_MOST, ("many",), "needs numbers"),
        (LimitRule.AT_LEAST, (True,), "needs numbers"),
        (LimitRule.AT_MOST, (50,), None),
    ],
)
def test_values_that_make_no_limit_are_refused(
    rule: LimitRule, values: tuple[Any, ...], said: str | None
) -> None:
    assert matching.find_problem(ArgumentLimit(path=("a",), rule=rule, values=values)) == said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)
CALLS = st.dictionaries(st.text(max_size=2), JSON, max_size=3)


@given(CALLS, CALLS)
def test_limits_to_the_values_of_a_call_match_that_call_alone(
    call: dict[str, Any], other: dict[str, Any]
) -> None:
    exact = [
        ArgumentLimit(path=path, rule=LimitRule.EQUALS, values=(value,))
        for path, value in matching.collect_leaves(call).items()
    ]
    assert matching.find_mismatch(exact, call) is None
    assert (matching.find_mismatch(exact, other) is None) is (
        matching.collect_leaves(other) == matching.collect_leaves(call)
    )


@given(st.integers(-99, 99), st.integers(-99, 99), st.integers(-99, 99))
def test_a_number_is_within_two_others_as_in_arithmetic(low: int, value: int, high: int) -> None:
    ends = {LimitRule.AT_LEAST: (low,), LimitRule.AT_MOST: (high,), LimitRule.BETWEEN: (low, high)}
    for convert in (int, float, str):
        fits = {
            rule: matching.find_mismatch(
                [ArgumentLimit(path=("n",), rule=rule, values=tuple(map(convert, given)))],
                {"n": convert(value) if convert is not float else value},
            )
            is None
            for rule, given in ends.items()
            if convert is not str or "." not in str(value)
        }
        assert fits == {
            LimitRule.AT_LEAST: low <= value,
            LimitRule.AT_MOST: value <= high and (value >= 0 or high < 0),
            LimitRule.BETWEEN: low <= value <= high,
        }
