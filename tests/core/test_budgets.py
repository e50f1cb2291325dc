"""Budgets as people write them: shown text reads back equal, and errors name invalid text."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.values.budgets import (
    MAX,
    NAMES,
    Amount,
    BudgetLimits,
    ExhaustedLimit,
    InvalidBudget,
    Limit,
    describe_exhaustion,
    limit_budget,
    read_budget,
    read_form_budget,
    read_granted,
    to_json,
    to_text,
)

WHOLE = {
    name: st.integers(1, int(MAX[limit]))
    for name, limit in NAMES.items()
    if name not in ("usd", "seconds")
}
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        **WHOLE,
        "usd": st.decimals("0.000001", "1000000", places=6).map(str),
        "seconds": st.integers(1, 31_622_400) | st.floats(0.001, 31_622_400),
    },
)
REACHED = {Limit.TURNS, Limit.MICROS}


@given(GIVEN)
def test_a_budget_is_shown_as_it_was_given(values: dict[str, object]) -> None:
    budget = read_budget(values)
    assert read_budget(to_json(budget)) == budget
    assert set(to_json(budget)) == set(values)


def test_money_is_kept_to_the_millionth_of_a_dollar() -> None:
    for value in ("1.10", 1.1, Decimal("1.100000")):
        assert read_budget({"usd": value, "turns": None}) == BudgetLimits(micros=1_100_000)
    assert to_text(Limit.MICROS, 1_100_000) == "1.10"
    assert to_text(Limit.MICROS, 1) == "0.000001"
    assert read_budget(None) is None
    assert read_budget({"turns": None}) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (7, "must be an object with some of turns, calls, tokens, usd, seconds, depth"),
        ({"money": 1}, "money is not expected"),
        ({"turns": 0}, "turns must be between 1 and 1000000"),
        ({"turns": 1.5}, "turns must be a whole number"),
        ({"turns": True}, "turns must be a number"),
        ({"seconds": 0}, "seconds must be between 0.001 and 31622400"),
        ({"seconds": float("nan")}, "seconds must be between 0.001 and 31622400"),
        ({"usd": "1_000"}, "usd must be an amount such as 1.50"),
        ({"usd": "0.0000001"}, "usd must have at most six decimals"),
        ({"usd": 0}, "usd must be between 0.000001 and 1000000.00"),
        ({"usd": "10000000"}, "usd must be between 0.000001 and 1000000.00"),
        ({"usd": "10000000.1"}, "usd must be an amount such as 1.50"),
        ({"usd": -1e300}, "usd must be an amount such as 1.50"),
        ({"usd": Decimal("sNaN")}, "usd must be an amount such as 1.50"),
    ],
)
def test_an_invalid_budget_is_named(values: object, message: str) -> None:
    with pytest.raises(InvalidBudget) as problem:
        read_budget(values)
    assert str(problem.value) == message
    name = problem.value.name  # of the field beside which a page says why
    assert name == ("" if values == 7 else message.partition(" ")[0])
    assert problem.value.detail == message.removeprefix(f"{name} ")


def test_a_run_may_be_given_less_and_never_more() -> None:
    most = BudgetLimits(turns=10, micros=5_000_000)
    assert limit_budget(None, most) == most
    assert limit_budget(most, most) == most
    assert limit_budget(BudgetLimits(turns=3, calls=2), most) == BudgetLimits(
        turns=3, calls=2, micros=5_000_000
    )
    with pytest.raises(InvalidBudget, match=r"usd must be at most 5\.00 here"):
        limit_budget(BudgetLimits(micros=5_000_001), most)


def test_only_reached_limits_can_be_granted() -> None:
    grant = {"turns": None, "usd": "0.5"}
    assert read_granted(grant, REACHED) == {Limit.TURNS: None, Limit.MICROS: 500_000}
    for wrong, message in (
        (None, "must be an object with some of"),
        ({}, "must grant some US dollars or turns"),
        ({"tokens": 5}, "tokens was not reached"),
        ({"turns": -5}, "turns must be between"),
    ):
        with pytest.raises(InvalidBudget, match=message):
            read_granted(wrong, REACHED)


def test_typed_amounts_are_read_like_json_ones() -> None:
    texts = {"turns": " 7 ", "seconds": "2.5", "usd": "1.50", "tokens": "many", "calls": "  "}
    assert read_form_budget(texts) == {"turns": 7, "seconds": 2.5, "usd": "1.50", "tokens": "many"}


@pytest.mark.parametrize(
    ("limit", "used", "allowed", "words"),
    [
        (Limit.TURNS, 10, 10, "10 of 10 turns"),
        (Limit.MICROS, 1_020_000, 1_000_000, "1.02 of 1.00 US dollars"),
        (Limit.SECONDS, 60.25, 60, "60.25 of 60 active seconds"),
        (
            Limit.MICROS,
            None,
            500_000,
            "0.50 US dollars, which cannot be held: the model has no known price",
        ),
    ],
)
def test_reached_limits_are_described_in_words(
    limit: Limit, used: Amount | None, allowed: Amount, words: str
) -> None:
    assert describe_exhaustion(ExhaustedLimit(limit=limit, used=used, allowed=allowed)) == words
