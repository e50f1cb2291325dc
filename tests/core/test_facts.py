"""Small facts of the core that others build on, each said once."""

import dataclasses
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from config.env.environment import ROOT
from runtime.core.run.accounting import find_exhaustion_time, has_limits
from runtime.core.run.calls import explain_item_end
from runtime.core.run.continuation import MAX_REFUSALS, Call, Continuation, Phase, replace
from runtime.core.run.planning import CancelRun, OpenFrame, plan
from runtime.core.values import json_values, limits, texts
from runtime.core.values.budgets import NO_LIMITS, BudgetLimits, Rates, count_tokens
from runtime.core.values.ids import make_call_id, parse_turn, turn_mark
from runtime.execution.effects.perform import make_idempotency_key
from tests.core.run.events import AT, frame_of

RUN = UUID(int=1)


@pytest.mark.parametrize(
    ("one", "changes"),
    [
        (Call(id="c1.0", tool="look", args={}), {"attempt": 2, "result": [1]}),
        (frame_of(), {"turn": 3, "outcome": "done"}),
        (Continuation(run=RUN), {"position": 5, "frames": {}, "head": "mac"}),
    ],
)
def test_a_fast_copy_is_that_of_the_library(one: Any, changes: dict[str, Any]) -> None:
    before = dataclasses.asdict(one)
    copy = replace(one, **changes)
    assert copy == dataclasses.replace(one, **changes)
    assert dataclasses.asdict(one) == before
    assert vars(copy) is not vars(one)
    assert not hasattr(copy, "__post_init__")  # which would be passed by


def test_a_price_is_by_the_million_tokens_and_rounded_up() -> None:
    rates = Rates(input=3_000_000, output=15_000_000)
    prices = {(0, 0): 0, (1, 0): 3, (0, 1): 15, (1_000_000, 2): 3_000_030}
    for (given, replied), price in prices.items():
        assert rates.compute_price(input=given, output=replied) == price
    assert Rates(input=500_001, output=0).compute_price(input=2, output=0) == 2
    assert count_tokens({"input_tokens": 5, "output_tokens": 3, "cache_read_tokens": 4}) == 8


def test_ids_keep_their_form() -> None:
    assert (make_call_id(12, 3), parse_turn("c12.3")) == ("c12.3", 12)
    assert make_call_id(12, 3).startswith(turn_mark(12))
    assert not make_call_id(12, 3).startswith(turn_mark(1))
    key = make_idempotency_key(RUN, "0.c1.0", "c2.0")
    assert key == "00000000-0000-0000-0000-000000000001/0.c1.0/c2.0"


def test_a_run_fails_at_the_limit_of_refused_calls() -> None:
    now = Continuation(run=RUN, phase=Phase.STARTED, agent="a", refusals=MAX_REFUSALS)
    assert plan(now) == (CancelRun(reason="5 calls that could not be made"),)
    assert isinstance(plan(replace(now, refusals=MAX_REFUSALS - 1))[0], OpenFrame)


def test_an_item_ends_at_the_limit_of_refused_calls() -> None:
    now, item = Continuation(run=RUN), frame_of(item=True, refusals=MAX_REFUSALS)
    assert explain_item_end(now, item) == "5 calls of this item that could not be made"
    assert explain_item_end(now, replace(item, refusals=MAX_REFUSALS - 1)) == ""


def test_a_run_is_limited_only_by_its_budget() -> None:
    budgets = {None: False, NO_LIMITS: False, BudgetLimits(turns=1): True}
    for budget, held in budgets.items():
        assert has_limits(Continuation(run=RUN, budget=budget)) is held


@pytest.mark.parametrize(
    ("of_run", "of_frame", "left"), [(None, 30.0, 25), (20.0, 30.0, 10), (60.0, 30.0, 25)]
)
def test_a_wait_ends_at_a_time_limit(of_run: float | None, of_frame: float, left: int) -> None:
    frame = frame_of(
        until=AT + timedelta(hours=1), budget=BudgetLimits(seconds=of_frame), since=5.0
    )
    now = Continuation(run=RUN, phase=Phase.STARTED, frames={"0": frame}, worked=10.0, ticking=AT)
    now = replace(now, budget=BudgetLimits(seconds=of_run))
    assert find_exhaustion_time(now) == AT + timedelta(seconds=left)


def test_operators_read_every_limit() -> None:
    """A limit that is changed or added fails here until the page says so."""
    page = (ROOT / "docs/reference/limits.md").read_text()
    told = {int(word) for word in page.replace("|", " ").split() if word.isdecimal()}
    kept = [value for name, value in vars(limits).items() if name.isupper()]
    assert (len(kept), [number for number in kept if number not in told]) == (40, [])


def test_text_is_escaped_and_cut_to_what_a_journal_takes() -> None:
    for text in ("plain", "x" * limits.MAX_ERROR):
        assert texts.clean_text(text) == text
    assert texts.clean_text("a\x00b\ud800") == "a\\0b\\ud800"
    cut = texts.clean_text("\x00" * limits.MAX_ERROR)
    assert len(cut) == limits.MAX_ERROR
    assert cut.endswith("…")
    assert json_values.measure_size({"a": ["é", 1], "b": None}) == len(
        '{"a":["é",1],"b":null}'.encode()
    )
