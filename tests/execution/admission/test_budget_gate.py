"""Limits on real Postgres: one gate for all exhausted limits, grants, stopping, and active time."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone

from runtime.control.start import create
from runtime.control.verification import verify
from runtime.core.budgets import Budget
from runtime.core.continuation import Continuation
from runtime.core.enums import EffectClass, Verdict
from runtime.models import Run
from runtime.ports.effects import (
    ModelAnswer,
    ModelFailure,
    ModelRequest,
    Outcome,
)
from runtime.store import pool
from runtime.store.tables import journal
from runtime.store.tables.continuations import load
from tests.support.engine import ADA, MakeBench, Rig, events, later, set_clock, types
from tests.support.fake_ports import FakeTool, ask, say, turns

LOOK = FakeTool(effect=EffectClass.READ)


def start(budget: Budget | None = None, agent: str = "a") -> UUID:
    with transaction.atomic():
        return create(agent=agent, input={}, requester=ADA, budget=budget).run


def busy(calls: int) -> Callable[[ModelRequest], Outcome]:
    """Return a model that proposes one call after the other, then answers."""
    return turns(*(ask(("look", {"n": n})) for n in range(calls)), say("done"))


def priced(answer: ModelAnswer, cost: int | None, tokens: int = 10) -> ModelAnswer:
    return ModelAnswer(
        reply=answer.reply,
        text=answer.text,
        calls=answer.calls,
        usage={"input_tokens": 0, "output_tokens": tokens},
        cost=cost,
    )


def limits(run: UUID) -> list[tuple[Any, ...]]:
    """Return the exhausted limits at the last limit gate: owner, kind, amount."""
    found = [event for event in events(run) if event["type"] == "BudgetExceeded"]
    last = [event for event in found if event["gate"] == found[-1]["gate"]]
    return [(e["frame"], e["limit"], e["used"], e["allowed"]) for e in last]


def gate_of(desk: Rig, run: UUID) -> UUID:
    (gate,) = desk.open_gates(run)
    assert (gate.kind, gate.call, gate.tool) == ("limit", "", "")
    return gate.id


def stored(run: Run) -> Continuation:
    with pool.pooled() as connection:
        return load(connection, run.id, run.base, journal.read(connection, run.id)[1].text)


def test_a_run_without_turns_left_waits_for_a_grant(rig: MakeBench, continued: None) -> None:
    desk = rig({"a": busy(3)}, look=LOOK)
    run = desk.advance(start(Budget(turns=2)))
    now = stored(run)
    assert (now.spent.turns, now.spent.calls, now.budget) == (2, 2, Budget(turns=2))
    assert now.short is not None
    assert (run.status, run.due_at, run.owner) == ("suspended", None, None)
    assert (len(desk.effects.models), len(desk.effects.calls)) == (2, 2)
    assert limits(run.id) == [(None, "turns", 2, 2)]
    (snapshot,) = desk.approvals.snapshots
    assert snapshot.sentence == "Used up: 2 of 2 turns of the run"
    desk.decide(gate_of(desk, run.id), Verdict.CONTINUE, result={"turns": 1})
    assert desk.advance(run.id).status == "suspended", "that is less than it needs"
    assert limits(run.id) == [(None, "turns", 3, 3)]
    desk.decide(gate_of(desk, run.id), Verdict.CONTINUE, result={"turns": None})
    assert desk.advance(run.id).status == "completed"
    assert types(run.id).count("BudgetGranted") == 2
    assert len(desk.effects.models) == 4


def test_children_of_one_turn_do_not_exceed_the_limit_together(rig: MakeBench) -> None:
    root = turns(ask(*((f"c{n}", {}) for n in range(3))), say("done"))
    desk = rig({"a": root, **{f"c{n}": turns(say("done")) for n in range(3)}})
    run = desk.advance(start(Budget(turns=3)))
    assert run.status == "suspended"
    assert len(desk.effects.models) == 3  # the root, and two of its three children
    assert limits(run.id) == [(None, "turns", 3, 3)]


def test_money_is_not_spent_on_a_model_without_a_price(rig: MakeBench) -> None:
    desk = rig({"a": turns(priced(say("done"), cost=None))})
    run = desk.advance(start(Budget(micros=1_000_000)))
    assert (run.status, desk.effects.models) == ("suspended", [])
    (snapshot,) = desk.approvals.snapshots
    assert "the model has no known price" in snapshot.sentence
    desk.decide(gate_of(desk, run.id), Verdict.CONTINUE, result={"usd": None})
    assert desk.advance(run.id).status == "completed"


def test_the_time_of_a_run_is_used_up_while_it_waits_for_a_retry(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ModelFailure(error="busy", retryable=True, retry_after=50.0))})
    began = timezone.now()
    run = desk.advance(start(Budget(seconds=20.0)))
    assert run.status == "waiting"
    assert run.due_at is not None
    assert began <= run.due_at - timedelta(seconds=20) <= timezone.now()
    due = run.due_at + timedelta(seconds=1)
    set_clock(monkeypatch, lambda: due)
    later(run.id)
    short = desk.advance(run.id)
    assert (short.status, len(desk.effects.models)) == ("suspended", 1)
    ((frame, limit, used, allowed),) = limits(run.id)
    assert (frame, limit, allowed) == (None, "seconds", 20.0)
    assert used >= 20
    assert verify(run.id).findings == ()


def test_people_may_take_their_time(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(start(Budget(seconds=60.0)))
    assert run.status == "suspended"
    assert stored(run).ticking is None
    assert verify(run.id).findings == ()
    (gate,) = desk.open_gates(run.id)
    desk.decide(gate.id, Verdict.APPROVE)
    week = run.created_at + timedelta(days=7)
    set_clock(monkeypatch, lambda: week)
    assert desk.advance(run.id).status == "completed"
