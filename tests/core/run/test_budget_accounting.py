"""Budgets in the core: charges add up in any order, and a limit is exceeded by one reservation at most."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.run.accounting import (
    LimitOwner,
    charge,
    compute_active_seconds,
    compute_reserved,
    find_exhaustion_time,
    list_exhausted_limits,
    may_start_effect,
    reserve_reply,
)
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import (
    BudgetExceeded,
    BudgetGranted,
    CallAdmitted,
    Cancelling,
    Compacted,
    Event,
    Forked,
    GateDecided,
    GateOpened,
    MemorySummarised,
    ModelReplied,
    Paused,
    RetryScheduled,
    ToolReturned,
    ToolStarted,
)
from runtime.core.run.forks import fork_document
from runtime.core.run.planning import CallModel, OpenFrame, StartTool, plan
from runtime.core.run.reducer import evolve, fold, make_initial_state, step
from runtime.core.run.retries import on_cut, on_no_reply, on_worker_lost
from runtime.core.values.budgets import (
    MICROS,
    NOTHING,
    REPLY_TOKENS,
    Amount,
    BudgetLimits,
    ExhaustedLimit,
    Limit,
    Rates,
    Spent,
)
from runtime.core.values.enums import FailureCause, GateKind, Verdict
from runtime.core.values.errors import CoreError, IllegalTransition
from runtime.core.values.ids import ROOT
from tests.core.run import events
from tests.core.run.events import AT, begun, opened, options

RATES = Rates(input=1 * MICROS, output=4 * MICROS)
GATE = UUID(int=7)
READ = options()
ASK = CallModel(frame=ROOT)
CANCELLED = Cancelling(by="ada", reason="enough")
FAILED: dict[str, Any] = {"attempt": 1, "cause": "error", "error": "busy"}


def later(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def started(
    run: BudgetLimits | None = None, *, own: BudgetLimits | None = None, rates: Rates | None = RATES
) -> Continuation:
    root = opened(budget=own, rates=rates, at=AT)
    return step(
        make_initial_state(UUID(int=1)), [begun(budget=run or BudgetLimits()), root], head="", at=AT
    )


def replied(
    frame: str = ROOT, calls: int = 0, *, tokens: int = 0, cost: int | None = 0
) -> ModelReplied:
    return events.replied(*["look"] * calls, frame=frame, usage={"input_tokens": tokens}, cost=cost)


def under_way(now: Continuation, call: str) -> Continuation:
    admitted = CallAdmitted(frame=ROOT, call=call, terms=READ)
    return fold(now, [admitted, ToolStarted(frame=ROOT, call=call, attempt=1, at=AT)])


def done(now: Continuation, call: str) -> Continuation:
    return evolve(under_way(now, call), ToolReturned(frame=ROOT, call=call, attempt=1, result=1))


def child(call: str, **more: Any) -> list[Event]:
    terms = options(delegate="child")
    admitted = CallAdmitted(frame=ROOT, call=call, terms=terms)
    return [admitted, opened(f"{ROOT}.{call}", rates=RATES, **more)]


def family(
    run: BudgetLimits | None = None, parent: BudgetLimits | None = None, children: int = 2
) -> Continuation:
    """A root with child frames, each about to ask its model."""
    now = evolve(started(run, own=parent), replied(calls=children))
    return fold(now, [event for index in range(children) for event in child(f"c1.{index}")])


def short_of(now: Continuation, at: datetime = AT) -> dict[Limit, ExhaustedLimit]:
    return {one.limit: one for one in list_exhausted_limits(now, plan(now), at)}


def test_a_reply_counts_for_its_frame_its_parents_and_the_run() -> None:
    now = evolve(family(), replied("0.c1.0", tokens=42, cost=9))
    spent = Spent(turns=1, tokens=42, micros=9)
    assert now.frame("0.c1.0").spent == spent
    assert now.frame("0.c1.1").spent == NOTHING
    assert now.frame(ROOT).spent == now.spent == spent + Spent(turns=1)
    now = evolve(now, replied("0.c1.1", cost=None))
    assert now.spent == Spent(turns=3, tokens=42, micros=9, unpriced=1)


def test_a_started_tool_counts_as_a_call_with_its_outcome() -> None:
    now = under_way(evolve(started(), replied(calls=1)), "c1.0")
    assert now.spent.calls == 0
    assert (
        compute_reserved(
            now, LimitOwner(frame=None, budget=BudgetLimits(), spent=now.spent), ()
        ).calls
        == 1
    )
    now = evolve(now, on_worker_lost(ROOT, now.call(ROOT, "c1.0")))
    assert now.spent.calls == 1
    now = evolve(now, ToolStarted(frame=ROOT, call="c1.0", attempt=2, at=AT))
    now = evolve(now, ToolReturned(frame=ROOT, call="c1.0", attempt=2, result=1))
    assert now.spent.calls == 2
    failed = RetryScheduled(frame=ROOT, call=None, until=later(1), **FAILED)
    assert evolve(started(), failed).spent == NOTHING


def test_a_reply_that_cannot_be_used_is_paid_for() -> None:
    now, usage = started(), {"input_tokens": 9, "output_tokens": 4}
    known: dict[str, Any] = {"retryable": True, "retry_after": None, "at": AT, "jitter": 0.5}
    known |= {"timeout": timedelta(days=1), "usage": usage, "cost": 3}
    after = evolve(now, on_no_reply(now.frame(ROOT), "cut", cause=FailureCause.REPLY, **known))
    assert (after.spent, after.usage) == (Spent(tokens=13, micros=3), usage)


def test_a_reply_that_was_cut_off_is_paid_for_as_far_as_known() -> None:
    now, usage = started(), {"input_tokens": 9, "output_tokens": 4}
    cut = on_cut(now.frame(ROOT), "message", at=AT, partial="so f", tokens=4, usage=usage, cost=3)
    after = evolve(now, cut)
    assert (after.spent, after.usage) == (Spent(tokens=13, micros=3), usage)
    frame = after.frame(ROOT)
    assert (frame.failures, frame.outage, frame.until) == (0, None, AT)
    assert evolve(now, on_cut(now.frame(ROOT), "lost", at=AT)).frame(ROOT).cut is None


def test_a_summary_by_the_model_is_paid_for_and_is_no_turn() -> None:
    now = evolve(started(), replied(calls=1))
    usage = {"input_tokens": 40, "output_tokens": 2}
    summary = Compacted(frame=ROOT, until=0, summary="", by="model", usage=usage, cost=7)
    assert charge(now, summary).spent == Spent(turns=1, tokens=42, micros=7)
    recalled = MemorySummarised(frame=ROOT, at=AT, digest="sha256:s", usage=usage, cost=7)
    assert charge(now, recalled).spent == Spent(turns=1, tokens=42, micros=7)
    assert charge(now, replace(summary, by="author")).spent == Spent(turns=1)
    unpriced = charge(now, replace(summary, cost=None)).spent
    assert (unpriced.micros, unpriced.unpriced) == (0, 1)


@given(
    children=st.integers(1, 8),
    tokens=st.integers(1, 40_000),
    micros=st.integers(1, 200_000),
    turns=st.integers(2, 10),
    data=st.data(),
)
def test_no_limit_is_passed_by_more_than_one_reservation(
    children: int, tokens: int, micros: int, turns: int, data: st.DataObject
) -> None:
    """This holds if no reply uses more than its reservation."""
    now = family(BudgetLimits(turns=turns, tokens=tokens, micros=micros), children=children)
    asking: list[str] = []
    while True:
        for effect in plan(now):
            if (
                isinstance(effect, CallModel)
                and effect.frame not in asking
                and not list_exhausted_limits(now, [effect], AT)
                and may_start_effect(now, effect, asking)
            ):
                asking.append(effect.frame)
        held = compute_reserved(
            now, LimitOwner(frame=None, budget=BudgetLimits(), spent=now.spent), asking
        )
        if not asking:
            break
        assert min(held.turns, held.calls, held.tokens, held.micros) >= 0
        together = now.spent + held
        assert together.turns <= turns
        assert together.tokens < tokens + REPLY_TOKENS
        assert together.micros < micros + RATES.compute_price(input=0, output=REPLY_TOKENS)
        frame = data.draw(st.sampled_from(asking))
        said = data.draw(st.integers(0, REPLY_TOKENS))
        asking.remove(frame)
        cost = RATES.compute_price(input=0, output=said)
        now = evolve(now, replied(frame, tokens=said, cost=cost))
    assert held == NOTHING


def test_a_reservation_delays_concurrent_starts() -> None:
    now = family(BudgetLimits(turns=2))
    assert may_start_effect(now, CallModel(frame="0.c1.0"), ()) is True
    assert may_start_effect(now, CallModel(frame="0.c1.1"), {"0.c1.0"}) is False
    assert short_of(now) == {}  # a running call may still return without a reply
    assert may_start_effect(now, OpenFrame(frame="0", agent="a", input=None), ()) is True
    assert reserve_reply(None, 10) == Spent(turns=1, tokens=10 + REPLY_TOKENS, micros=0)


def test_a_started_call_is_reserved_until_it_is_settled() -> None:
    now = under_way(evolve(started(BudgetLimits(calls=1, turns=9)), replied(calls=2)), "c1.0")
    now = evolve(now, CallAdmitted(frame=ROOT, call="c1.1", terms=READ))
    assert not may_start_effect(now, StartTool(frame=ROOT, call="c1.1", attempt=1), ())
    assert may_start_effect(now, ASK, ())
    assert short_of(now) == {}
    now = evolve(now, ToolReturned(frame=ROOT, call="c1.0", attempt=1, result=1))
    assert set(short_of(now)) == {Limit.CALLS}


def test_a_frames_limits_apply_to_its_descendants_only() -> None:
    now = family()
    child = now.frame("0.c1.0")
    now = now.with_frame(replace(child, budget=BudgetLimits(turns=1), spent=Spent(turns=1)))
    assert [one.frame for one in list_exhausted_limits(now, [CallModel(frame="0.c1.0")], AT)] == [
        "0.c1.0"
    ]
    assert list_exhausted_limits(now, [CallModel(frame="0.c1.1")], AT) == ()
    now = evolve(family(parent=BudgetLimits(turns=2)), replied("0.c1.0", calls=1))
    (one,) = list_exhausted_limits(now, [CallModel(frame="0.c1.1")], AT)
    assert one == ExhaustedLimit(limit=Limit.TURNS, used=2, allowed=2, frame=ROOT)
    scope = LimitOwner(frame="0.c1.1", budget=BudgetLimits(), spent=NOTHING)
    assert [f for f in ("0", "0.c1.1", "0.c1.10", "0.c1.1.c2.0") if scope.is_owner_of(f)] == [
        "0.c1.1",
        "0.c1.1.c2.0",
    ]


def test_nothing_is_short_where_nothing_may_start_anyway() -> None:
    now = evolve(started(BudgetLimits(turns=1)), replied(calls=1))
    assert [one.limit for one in list_exhausted_limits(now, [ASK], AT)] == [Limit.TURNS]
    for event in (Paused(by="ada", reason=""), CANCELLED):
        assert list_exhausted_limits(evolve(now, event), [ASK], AT) == ()
    assert list_exhausted_limits(replace(now, budget=BudgetLimits()), [ASK], AT) == ()
    answered = evolve(started(BudgetLimits(turns=1)), replied())
    assert short_of(answered) == {}


def test_all_limits_that_are_used_up_are_named_together() -> None:
    now = started(BudgetLimits(turns=1, tokens=10, micros=5))
    now = done(evolve(now, replied(calls=1, tokens=18, cost=9)), "c1.0")
    assert {(one.limit, one.used, one.allowed) for one in short_of(now).values()} == {
        (Limit.TURNS, 1, 1),
        (Limit.TOKENS, 18, 10),
        (Limit.MICROS, 9, 5),
    }


def test_money_cannot_be_held_where_the_price_is_not_known() -> None:
    assert short_of(started(BudgetLimits(micros=5), rates=None))[Limit.MICROS].used is None
    now = done(evolve(started(BudgetLimits(micros=5)), replied(calls=1, cost=None)), "c1.0")
    assert short_of(now)[Limit.MICROS].used is None
    assert short_of(started(rates=None)) == {}  # without a limit


def test_a_budget_says_how_deep_agents_may_stand() -> None:
    first = OpenFrame(frame="0.c1.0", agent="b", input={}, parent=ROOT, call="c1.0")
    below = OpenFrame(frame="0.c1.0.c1.0", agent="b", input={}, parent="0.c1.0", call="c1.0")
    for depth, is_reached in ((1, True), (2, False), (None, False)):
        of_run = started(BudgetLimits(depth=depth, turns=5))
        assert bool(list_exhausted_limits(of_run, [first], AT)) is is_reached
        of_child = child("c1.0", budget=BudgetLimits(depth=depth))  # counted from itself
        now = fold(evolve(started(), replied(calls=1)), of_child)
        assert bool(list_exhausted_limits(now, [below], AT)) is is_reached


def exceeded(limit: Limit, frame: str | None = None, allowed: Amount = 1) -> BudgetExceeded:
    return BudgetExceeded(gate=GATE, frame=frame, limit=limit, used=1, allowed=allowed, at=AT)


def granted(amounts: dict[Limit, Amount | None], gate: UUID = GATE) -> BudgetGranted:
    return BudgetGranted(gate=gate, by="bea", amounts=amounts)


def test_a_grant_raises_or_removes_every_reached_limit_of_its_kind() -> None:
    now = started(BudgetLimits(turns=1, tokens=5), own=BudgetLimits(turns=1))
    reached = [exceeded(Limit.TURNS), exceeded(Limit.TURNS, ROOT), exceeded(Limit.TOKENS, None, 5)]
    now = fold(now, reached)
    turns = evolve(now, granted({Limit.TURNS: 4}))
    assert (turns.budget, turns.short) == (BudgetLimits(turns=5, tokens=5), None)
    assert turns.frame(ROOT).budget == BudgetLimits(turns=5)
    tokens = evolve(now, granted({Limit.TOKENS: None}))
    assert tokens.budget == BudgetLimits(turns=1)
    assert tokens.frame(ROOT).budget == BudgetLimits(turns=1)


def test_a_grant_needs_its_open_gate_and_a_run_that_does_not_end() -> None:
    now = evolve(started(BudgetLimits(turns=1)), exceeded(Limit.TURNS))
    for state in (started(BudgetLimits(turns=1)), now):
        with pytest.raises(CoreError):
            evolve(state, granted({Limit.TURNS: 4}, UUID(int=8)))
    for event in (granted({Limit.TURNS: 4}), exceeded(Limit.TOKENS)):
        with pytest.raises(IllegalTransition):
            evolve(evolve(now, CANCELLED), event)


def test_active_time_excludes_waiting_for_people() -> None:
    now = started(BudgetLimits(seconds=10))
    assert compute_active_seconds(now, later(4)) == 4
    assert compute_active_seconds(now, later(-3600)) == 0  # the clock was set back
    approval = GateOpened(gate=GATE, kind=GateKind.APPROVAL, frame=ROOT, call="c1.0", terms=READ)
    now = step(now, [replied(calls=1), approval], head="", at=later(4))
    assert compute_active_seconds(now, later(4000)) == 4
    approved = GateDecided(
        gate=GATE, frame=ROOT, call="c1.0", verdict=Verdict.APPROVE, by="bea", reason=""
    )
    now = step(now, [approved], head="", at=later(4000))
    assert compute_active_seconds(now, later(4005)) == 9
    assert short_of(now, later(4005)) == {}
    assert short_of(now, later(4006.23456))[Limit.SECONDS].used == 10.235
    untimed = step(started(BudgetLimits(turns=3)), [replied(calls=1)], head="", at=later(9))
    assert (untimed.worked, untimed.ticking) == (0.0, None)


def test_a_run_in_backoff_is_due_at_its_time_limit() -> None:
    now = started(BudgetLimits(seconds=10))
    retry = RetryScheduled(frame=ROOT, call=None, until=later(60), **FAILED)
    now = step(now, [retry], head="", at=later(3))
    assert find_exhaustion_time(now) == later(10)
    assert short_of(now, later(9)) == {}
    assert set(short_of(now, later(10))) == {Limit.SECONDS}
    gate = GateOpened(gate=GATE, kind=GateKind.LIMIT, frame=ROOT, call="", terms=None, at=AT)
    now = step(now, [exceeded(Limit.SECONDS, None, 10), gate], head="", at=later(10))
    assert find_exhaustion_time(now) is None
    assert compute_active_seconds(now, later(99)) == 10


def test_an_agents_own_time_begins_when_its_frame_opens() -> None:
    now = step(started(BudgetLimits(seconds=100)), [replied(calls=1)], head="", at=later(20))
    opens = child("c1.0", budget=BudgetLimits(seconds=5), at=later(22))
    now = step(now, opens, head="", at=later(22))
    assert short_of(now, later(26)) == {}
    (one,) = list_exhausted_limits(now, plan(now), later(27))
    assert (one.frame, one.limit, one.used) == ("0.c1.0", Limit.SECONDS, 5)


def test_a_fork_keeps_the_usage_and_starts_its_own_clock() -> None:
    now = step(started(BudgetLimits(seconds=10, turns=5)), [replied(calls=1)], head="", at=later(4))
    fork = Forked(of=now.run, position=now.position, by="bea", state=fork_document(now))
    copy = step(
        make_initial_state(UUID(int=2)), [begun(requester="bea"), fork], head="", at=later(1000)
    )
    assert (copy.spent, copy.budget) == (now.spent, now.budget)
    assert compute_active_seconds(copy, later(1003)) == 7
    assert compute_active_seconds(now, later(1003)) == 1003
