"""Budgets in the core: charges add up in any order, and a limit is exceeded by one reservation at most."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.budgets import (
    MICROS,
    NOTHING,
    REPLY_TOKENS,
    Amount,
    Budget,
    ExhaustedLimit,
    Limit,
    Rates,
    Spent,
    strictest,
)
from runtime.core.commands import CallModel, OpenFrame, StartTool
from runtime.core.continuation import Continuation
from runtime.core.enums import GateKind, Verdict
from runtime.core.errors import CoreError, IllegalTransition
from runtime.core.events import (
    BudgetExceeded,
    BudgetGranted,
    CallAdmitted,
    Cancelling,
    Compacted,
    Event,
    Forked,
    FrameOpened,
    GateDecided,
    GateOpened,
    ModelReplied,
    Paused,
    Proposal,
    RetryScheduled,
    RunStarted,
    ToolReturned,
    ToolStarted,
)
from runtime.core.ids import ROOT
from runtime.core.machine.active_time import active_seconds, exhausted_at
from runtime.core.machine.budget_accounting import (
    Scope,
    charge,
    exhausted,
    fits,
    reply_of,
    reserved,
)
from runtime.core.machine.forks import forked
from runtime.core.machine.planning import plan
from runtime.core.machine.reducer import evolve
from runtime.core.machine.replay import fold, initial, step
from runtime.core.machine.retries import on_worker_lost
from tests.core.machine.events import options

AT = datetime(2026, 1, 1, tzinfo=UTC)
RATES = Rates(input=1 * MICROS, output=4 * MICROS)
GATE = UUID(int=7)
READ = options()


def later(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def opened(
    frame: str = ROOT, *, budget: Budget | None = None, rates: Rates | None = RATES, at: float = 0
) -> FrameOpened:
    parent, _, call = frame.rpartition(".c")
    return FrameOpened(
        frame=frame,
        agent=f"agent-{frame}",
        fingerprint="sha256:f",
        prompt="sha256:p",
        plan=None,
        input={},
        parent=parent or None,
        call=f"c{call}" if parent else None,
        budget=budget,
        rates=rates,
        at=later(at),
    )


def started(
    run: Budget | None = None, *, own: Budget | None = None, rates: Rates | None = RATES
) -> Continuation:
    events: list[Event] = [
        RunStarted(agent="agent-0", input={}, requester="ada", budget=run or Budget()),
        opened(budget=own, rates=rates),
    ]
    return step(initial(UUID(int=1)), events, head="", at=AT)


def replied(
    frame: str = ROOT, calls: int = 0, *, tokens: tuple[int, int] = (0, 0), cost: int | None = 0
) -> ModelReplied:
    return ModelReplied(
        frame=frame,
        reply={},
        text="",
        calls=tuple(Proposal(tool="look", args={"n": n}) for n in range(calls)),
        usage={"input_tokens": tokens[0], "output_tokens": tokens[1]},
        cost=cost,
    )


def under_way(now: Continuation, call: str, frame: str = ROOT) -> Continuation:
    now = evolve(now, CallAdmitted(frame=frame, call=call, terms=READ))
    return evolve(now, ToolStarted(frame=frame, call=call, attempt=1, at=AT))


def done(call: str, frame: str = ROOT) -> ToolReturned:
    return ToolReturned(frame=frame, call=call, attempt=1, result=1)


def family(run: Budget | None = None, parent: Budget | None = None) -> Continuation:
    """A root with two child frames, each about to ask its model."""
    now = evolve(started(run, own=parent), replied(calls=2))
    for call in ("c1.0", "c1.1"):
        terms = options(delegate="child")
        now = evolve(now, CallAdmitted(frame=ROOT, call=call, terms=terms))
        now = evolve(now, opened(f"{ROOT}.{call}"))
    return now


def short_of(now: Continuation, at: datetime = AT) -> dict[Limit, ExhaustedLimit]:
    return {one.limit: one for one in exhausted(now, plan(now), at)}


# Settling


def test_a_reply_counts_for_its_frame_its_parents_and_the_run() -> None:
    now = evolve(family(), replied("0.c1.0", tokens=(30, 12), cost=9))
    child = Spent(turns=1, tokens=42, micros=9)
    assert now.frame("0.c1.0").spent == child
    assert now.frame("0.c1.1").spent == NOTHING
    assert now.frame(ROOT).spent == now.spent == child + Spent(turns=1)


def test_a_started_tool_counts_as_a_call_with_its_outcome() -> None:
    now = evolve(started(), replied(calls=1))
    now = under_way(now, "c1.0")
    assert now.spent.calls == 0
    assert reserved(now, Scope(frame=None, budget=Budget(), spent=now.spent), ()).calls == 1
    now = evolve(now, on_worker_lost(ROOT, now.call(ROOT, "c1.0")))
    assert now.spent.calls == 1
    now = evolve(now, ToolStarted(frame=ROOT, call="c1.0", attempt=2, at=AT))
    now = evolve(now, ToolReturned(frame=ROOT, call="c1.0", attempt=2, result=1))
    assert now.spent.calls == 2


def test_a_summary_by_the_model_is_paid_for_and_is_no_turn() -> None:
    now = evolve(started(), replied(calls=1))
    summary = Compacted(
        frame=ROOT,
        until=0,
        summary="so far",
        by="model",
        usage={"input_tokens": 40, "output_tokens": 2},
        cost=7,
    )
    assert charge(now, summary).spent == Spent(turns=1, tokens=42, micros=7)
    assert charge(now, replace(summary, by="author")).spent == Spent(turns=1)
    unpriced = charge(now, replace(summary, cost=None)).spent
    assert (unpriced.micros, unpriced.unpriced) == (0, 1)


def test_a_model_attempt_without_a_reply_has_no_known_cost() -> None:
    now = started()
    failed = RetryScheduled(
        frame=ROOT, call=None, attempt=1, cause="error", error="busy", until=later(1)
    )
    assert evolve(now, failed).spent == NOTHING


def test_replies_of_old_journals_have_no_price() -> None:
    now = evolve(started(), replied(cost=None))
    assert (now.spent.micros, now.spent.unpriced) == (0, 1)


USED = st.tuples(
    st.sampled_from(["0.c1.0", "0.c1.1"]),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.integers(0, 5_000_000) | st.none(),
)


@given(uses=st.lists(USED, max_size=6, unique_by=lambda use: use[0]), data=st.data())
def test_usage_is_the_sum_of_settlements_in_any_order(
    uses: list[tuple[str, int, int, int | None]], data: st.DataObject
) -> None:
    outcomes: list[Event] = [
        replied(frame, tokens=(given_, said), cost=cost) for frame, given_, said, cost in uses
    ]
    one = fold(family(), outcomes)
    other = fold(family(), data.draw(st.permutations(outcomes)))
    assert one.spent == other.spent
    assert one.spent == Spent(
        turns=1 + len(uses),
        tokens=sum(given_ + said for _, given_, said, _ in uses),
        micros=sum(cost or 0 for *_, cost in uses),
        unpriced=sum(cost is None for *_, cost in uses),
    )


# Reserving


@dataclass
class Wide:
    """Many children of one root, asked as often as their limits allow, and answered in any order."""

    now: Continuation
    asking: list[str]

    def ask(self) -> None:
        for effect in plan(self.now):
            if (
                isinstance(effect, CallModel)
                and effect.frame not in self.asking
                and not exhausted(self.now, [effect], AT)
                and fits(self.now, effect, self.asking)
            ):
                self.asking.append(effect.frame)

    def reserved(self) -> Spent:
        scope = Scope(frame=None, budget=Budget(), spent=self.now.spent)
        return reserved(self.now, scope, self.asking)


def wide(children: int, budget: Budget) -> Wide:
    now = evolve(started(budget), replied(calls=children))
    terms = options(delegate="child")
    for index in range(children):
        now = evolve(now, CallAdmitted(frame=ROOT, call=f"c1.{index}", terms=terms))
        now = evolve(now, opened(f"0.c1.{index}"))
    return Wide(now=now, asking=[])


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
    world = wide(children, Budget(turns=turns, tokens=tokens, micros=micros))
    world.ask()
    while world.asking:
        held = world.reserved()
        assert min(held.turns, held.calls, held.tokens, held.micros) >= 0
        together = world.now.spent + held
        largest = RATES.price(input=0, output=REPLY_TOKENS)
        assert together.turns <= turns
        assert together.tokens < tokens + REPLY_TOKENS
        assert together.micros < micros + largest
        frame = data.draw(st.sampled_from(world.asking))
        said = data.draw(st.integers(0, REPLY_TOKENS))
        cost = RATES.price(input=0, output=said)
        world.asking.remove(frame)
        world.now = evolve(world.now, replied(frame, tokens=(0, said), cost=cost))
        world.ask()
    assert world.reserved() == NOTHING


def test_a_reservation_delays_concurrent_starts() -> None:
    now = family(Budget(turns=2))
    assert fits(now, CallModel(frame="0.c1.0"), ())
    assert not fits(now, CallModel(frame="0.c1.1"), {"0.c1.0"})
    assert short_of(now) == {}  # a running call may still return without a reply


def test_a_started_call_is_reserved_until_it_is_settled() -> None:
    now = under_way(evolve(started(Budget(calls=1)), replied(calls=2)), "c1.0")
    now = evolve(now, CallAdmitted(frame=ROOT, call="c1.1", terms=READ))
    start = StartTool(frame=ROOT, call="c1.1", attempt=1)
    assert not fits(now, start, ())
    assert short_of(now) == {}
    now = evolve(now, done("c1.0"))
    assert set(short_of(now)) == {Limit.CALLS}


def test_a_frames_limits_apply_to_its_descendants_only() -> None:
    now = family()
    child = now.frame("0.c1.0")
    now = now.with_frame(replace(child, budget=Budget(turns=1), spent=Spent(turns=1)))
    assert [one.frame for one in exhausted(now, [CallModel(frame="0.c1.0")], AT)] == ["0.c1.0"]
    assert exhausted(now, [CallModel(frame="0.c1.1")], AT) == ()


def test_a_frames_limit_counts_its_children() -> None:
    now = evolve(family(parent=Budget(turns=2)), replied("0.c1.0", calls=1))
    (one,) = exhausted(now, [CallModel(frame="0.c1.1")], AT)
    assert one == ExhaustedLimit(limit=Limit.TURNS, used=2, allowed=2, frame=ROOT)


# Reaching


@pytest.mark.parametrize(
    ("frame", "held"),
    [("0.c1.1", True), ("0.c1.1.c2.0", True), ("0", False), ("0.c1.0", False), ("0.c1.10", False)],
)
def test_a_frame_reserves_for_itself_and_its_descendants(frame: str, held: bool) -> None:
    assert Scope(frame="0.c1.1", budget=Budget(), spent=NOTHING).contains(frame) is held
    assert Scope(frame=None, budget=Budget(), spent=NOTHING).contains(frame)


def test_an_exceeded_limit_is_described() -> None:
    now = evolve(started(Budget(turns=1)), replied(calls=1))
    assert fits(now, CallModel(frame=ROOT), ()) is False
    assert fits(now, StartTool(frame=ROOT, call="c1.0", attempt=1), ()) is True


def test_a_reply_without_a_known_price_counts_as_free() -> None:
    assert reply_of(None, 10) == Spent(turns=1, tokens=10 + REPLY_TOKENS, micros=0)


def test_nothing_is_short_where_nothing_may_start_anyway() -> None:
    ask = [CallModel(frame=ROOT)]
    now = evolve(started(Budget(turns=1)), replied(calls=1))
    assert [one.limit for one in exhausted(now, ask, AT)] == [Limit.TURNS]
    for event in (Paused(by="ada", reason=""), Cancelling(by="ada", reason="enough")):
        assert exhausted(evolve(now, event), ask, AT) == ()
    assert exhausted(replace(now, budget=Budget()), ask, AT) == ()


def test_seconds_are_told_to_the_thousandth() -> None:
    now = started(Budget(seconds=1))
    (one,) = exhausted(now, [CallModel(frame=ROOT)], later(1.23456))
    assert one.used == 1.235


def test_a_limit_that_nothing_needs_any_more_is_not_asked_for() -> None:
    now = evolve(started(Budget(turns=1)), replied())
    assert short_of(now) == {}  # it answered with its last turn


def test_all_limits_that_are_used_up_are_named_together() -> None:
    now = evolve(
        started(Budget(turns=1, tokens=10, micros=5)), replied(calls=1, tokens=(9, 9), cost=9)
    )
    now = evolve(under_way(now, "c1.0"), done("c1.0"))
    assert {(one.limit, one.used, one.allowed) for one in short_of(now).values()} == {
        (Limit.TURNS, 1, 1),
        (Limit.TOKENS, 18, 10),
        (Limit.MICROS, 9, 5),
    }


def test_money_cannot_be_held_where_the_price_is_not_known() -> None:
    unpriced = short_of(started(Budget(micros=5), rates=None))
    assert unpriced[Limit.MICROS].used is None
    now = evolve(started(Budget(micros=5)), replied(calls=1, cost=None))
    now = evolve(under_way(now, "c1.0"), done("c1.0"))
    assert short_of(now)[Limit.MICROS].used is None
    assert short_of(started(rates=None)) == {}  # without a limit


@pytest.mark.parametrize(("depth", "is_reached"), [(1, True), (2, False), (None, False)])
def test_a_budget_says_how_deep_agents_may_stand(depth: int | None, is_reached: bool) -> None:
    now = started(Budget(depth=depth, turns=5))
    child = OpenFrame(frame="0.c1.0", agent="child", input={}, parent=ROOT, call="c1.0")
    assert bool(exhausted(now, [child], AT)) is is_reached


@pytest.mark.parametrize(("depth", "is_reached"), [(1, True), (2, False)])
def test_an_agents_own_budget_counts_depth_from_itself(depth: int, is_reached: bool) -> None:
    now = evolve(started(), replied(calls=1))
    now = evolve(now, CallAdmitted(frame=ROOT, call="c1.0", terms=replace(READ, delegate="child")))
    now = evolve(now, opened("0.c1.0", budget=Budget(depth=depth)))
    below = OpenFrame(
        frame="0.c1.0.c1.0", agent="grandchild", input={}, parent="0.c1.0", call="c1.0"
    )
    assert bool(exhausted(now, [below], AT)) is is_reached


def test_nothing_is_short_in_a_run_that_ends() -> None:
    now = evolve(started(Budget(turns=1)), replied(calls=1))
    now = evolve(under_way(now, "c1.0"), done("c1.0"))
    assert short_of(now)
    assert short_of(evolve(now, Cancelling(by="ada", reason="enough"))) == {}


# Granting


def exceeded(limit: Limit, frame: str | None = None, allowed: Amount = 1) -> BudgetExceeded:
    return BudgetExceeded(gate=GATE, frame=frame, limit=limit, used=1, allowed=allowed, at=AT)


def test_a_grant_raises_every_reached_limit_of_its_kind() -> None:
    now = started(Budget(turns=1, tokens=5), own=Budget(turns=1))
    now = fold(
        now, [exceeded(Limit.TURNS), exceeded(Limit.TURNS, ROOT), exceeded(Limit.TOKENS, None, 5)]
    )
    turns = evolve(now, BudgetGranted(gate=GATE, by="bea", amounts={Limit.TURNS: 4}))
    assert turns.budget == Budget(turns=5, tokens=5)
    assert turns.frame(ROOT).budget == Budget(turns=5)
    assert turns.short is None
    tokens = evolve(now, BudgetGranted(gate=GATE, by="bea", amounts={Limit.TOKENS: 4}))
    assert tokens.budget == Budget(turns=1, tokens=9)
    assert tokens.frame(ROOT).budget == Budget(turns=1)


def test_a_limit_can_be_taken_away() -> None:
    now = evolve(started(Budget(micros=1)), exceeded(Limit.MICROS))
    now = evolve(now, BudgetGranted(gate=GATE, by="bea", amounts={Limit.MICROS: None}))
    assert now.budget == Budget()


def test_nothing_is_reached_or_granted_in_a_run_that_ends() -> None:
    now = evolve(started(Budget(turns=1)), exceeded(Limit.TURNS))
    now = evolve(now, Cancelling(by="ada", reason="enough"))
    granted = BudgetGranted(gate=GATE, by="bea", amounts={Limit.TURNS: 4})
    for event in (granted, exceeded(Limit.TOKENS)):
        with pytest.raises(IllegalTransition):
            evolve(now, event)


def test_a_grant_needs_an_open_gate() -> None:
    granted = BudgetGranted(gate=UUID(int=8), by="bea", amounts={Limit.TURNS: 4})
    now = evolve(started(Budget(turns=1)), exceeded(Limit.TURNS))
    for state in (started(Budget(turns=1)), now):
        with pytest.raises(CoreError):
            evolve(state, granted)


@given(
    st.builds(Budget, turns=st.none() | st.integers(1, 9), micros=st.none() | st.integers(1, 9)),
    st.builds(Budget, turns=st.none() | st.integers(1, 9), micros=st.none() | st.integers(1, 9)),
)
def test_the_stricter_budget_allows_only_common_amounts(one: Budget, other: Budget) -> None:
    both = strictest(one, other)
    assert both is not None
    for limit in (Limit.TURNS, Limit.MICROS):
        bounds = [budget.of(limit) for budget in (one, other)]
        assert both.of(limit) == min((b for b in bounds if b is not None), default=None)


# Time at work


def at_limit(now: Continuation) -> tuple[Event, ...]:
    opened_ = GateOpened(
        gate=GATE, kind=GateKind.LIMIT, frame=ROOT, call="", terms=None, reason="", at=AT
    )
    return exceeded(Limit.SECONDS, None, 10), opened_


def test_active_time_excludes_waiting_for_people() -> None:
    now = started(Budget(seconds=10))
    assert active_seconds(now, later(4)) == 4
    approval = GateOpened(gate=GATE, kind=GateKind.APPROVAL, frame=ROOT, call="c1.0", terms=READ)
    now = step(now, [replied(calls=1), approval], head="", at=later(4))
    assert active_seconds(now, later(4000)) == 4
    approved = GateDecided(
        gate=GATE, frame=ROOT, call="c1.0", verdict=Verdict.APPROVE, by="bea", reason=""
    )
    now = step(now, [approved], head="", at=later(4000))
    assert active_seconds(now, later(4005)) == 9
    assert short_of(now, later(4005)) == {}
    assert short_of(now, later(4006))[Limit.SECONDS].used == 10


def test_a_clock_set_back_does_not_reduce_active_time() -> None:
    now = started(Budget(seconds=10))
    assert active_seconds(now, later(-3600)) == 0


def test_a_run_in_backoff_is_due_at_its_time_limit() -> None:
    now = started(Budget(seconds=10))
    retry = RetryScheduled(
        frame=ROOT, call=None, attempt=1, cause="error", error="busy", until=later(60)
    )
    now = step(now, [retry], head="", at=later(3))
    assert exhausted_at(now) == later(10)
    assert short_of(now, later(9)) == {}
    assert set(short_of(now, later(10))) == {Limit.SECONDS}
    now = step(now, at_limit(now), head="", at=later(10))
    assert exhausted_at(now) is None
    assert active_seconds(now, later(99)) == 10


def test_an_agents_own_time_begins_when_its_frame_opens() -> None:
    now = started(Budget(seconds=100))
    now = step(now, [replied(calls=1)], head="", at=later(20))
    terms = options(delegate="child")
    child = opened("0.c1.0", budget=Budget(seconds=5), at=22)
    admitted = CallAdmitted(frame=ROOT, call="c1.0", terms=terms)
    now = step(now, [admitted, child], head="", at=later(22))
    assert short_of(now, later(26)) == {}
    (one,) = exhausted(now, plan(now), later(27))
    assert (one.frame, one.limit, one.used) == ("0.c1.0", Limit.SECONDS, 5)


def test_a_fork_keeps_the_usage_and_starts_its_own_clock() -> None:
    now = step(started(Budget(seconds=10, turns=5)), [replied(calls=1)], head="", at=later(4))
    fork: list[Event] = [
        RunStarted(agent="agent-0", input={}, requester="bea"),
        Forked(of=now.run, position=now.position, by="bea", state=forked(now)),
    ]
    copy = step(initial(UUID(int=2)), fork, head="", at=later(1000))
    assert (copy.spent, copy.budget) == (now.spent, now.budget)
    assert active_seconds(copy, later(1003)) == 7
    assert active_seconds(now, later(1003)) == 1003


def test_no_clock_is_kept_without_a_time_limit() -> None:
    now = step(started(Budget(turns=3)), [replied(calls=1)], head="", at=later(9))
    assert (now.worked, now.ticking) == (0.0, None)
