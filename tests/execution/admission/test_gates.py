"""Gates of frames and calls: rules, outages, limits, expiry, cancellation, and calls in doubt."""

from datetime import datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from runtime.control.interventions import send_message
from runtime.control.start import create
from runtime.control.verification import verify
from runtime.core.run import retries
from runtime.core.run.continuation import MAX_SAME_REPLIES, Continuation
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.enums import EffectClass, FailureCause, Verdict
from runtime.errors import GateNotOpen, RunEnded
from runtime.models import Gate, Run
from runtime.ports.effects import (
    ModelFailure,
    Outcome,
    ToolFailure,
    ToolRequest,
    ToolResult,
    Unknown,
)
from runtime.store import pool
from runtime.store.tables import journal
from runtime.store.tables.continuations import load
from tests.support.engine import (
    ADA,
    MakeBench,
    Rig,
    cancel,
    events,
    failing,
    later,
    set_clock,
    types,
)
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.threads import aside

IDEMPOTENT = FakeTool(effect=EffectClass.IDEMPOTENT)
WHY = "a stops after every reply"
OUT = ModelFailure(error="openai:a is in trouble (status 503)", retryable=True, model="openai:a")
NO_KEY = ModelFailure(
    error="the key for openai:a was refused (status 401)", retryable=True, cause=FailureCause.SETUP
)


def opened(desk: Rig, run: UUID, kind: str) -> Gate:
    (gate,) = desk.open_gates(run)
    assert (gate.kind, gate.call, gate.tool, gate.path) == (kind, "", "", ["a"])
    return gate


@pytest.fixture
def held_run(rig: MakeBench) -> tuple[Rig, Run]:
    """A run that its agent has stopped after the first reply."""
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=IDEMPOTENT)
    desk.effects.holds = ["", WHY]
    return desk, desk.advance(desk.start("a"))


def test_a_held_agent_asks_its_model_only_after_a_decision(held_run: tuple[Rig, Run]) -> None:
    desk, run = held_run
    assert (run.status, run.due_at, len(desk.effects.models)) == ("suspended", None, 1)
    gate = opened(desk, run.id, "hold")
    assert events(run.id)[-1]["reason"] == WHY
    desk.decide(gate.id, Verdict.CONTINUE)
    assert desk.advance(run.id).status == "completed"
    assert len(desk.effects.models) == 2
    assert Gate.objects.get(id=gate.id).state == "effective"


def test_to_stop_ends_the_run_with_the_reason(held_run: tuple[Rig, Run]) -> None:
    """A message that comes with the decision is consumed, and not received any more."""
    desk, run = held_run
    desk.decide(opened(desk, run.id, "hold").id, Verdict.STOP, "it goes in circles")
    send_message(run=run.id, actor=ADA, text="Try another way.")
    run = desk.advance(run.id)
    assert (run.status, run.reason) == ("cancelled", "it goes in circles")
    assert len(desk.effects.models) == 1
    assert types(run.id)[-3:] == ["GateDecided", "Cancelling", "Cancelled"]


@pytest.mark.parametrize("broken", ["judge", "describe"])
def test_a_policy_error_keeps_the_reply_of_one_model_call(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def divides(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("a rule divides by zero")

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=IDEMPOTENT)
    with monkeypatch.context() as patch:
        patch.setattr(desk.effects if broken == "describe" else desk.approvals, broken, divides)
        run = desk.advance(desk.start("a")).id
        assert types(run)[-2:] == ["ModelReplied", "GateOpened"]
        assert "ZeroDivisionError" in str(events(run)[-1]["reason"])
        opened(desk, run, "hold")
        desk.answer(run, Verdict.CONTINUE)
        assert desk.effects.calls == []
        opened(desk, run, "hold")
    assert desk.answer(run, Verdict.CONTINUE).status == "completed"
    assert (len(desk.effects.models), len(desk.effects.calls)) == (2, 1)


def test_a_reply_that_repeats_is_held_without_a_budget(rig: MakeBench) -> None:
    """A person lets it go on for as many replies again, or ends it."""
    letter = FakeTool(body=lambda request: ToolResult(value="sent"))
    looping = [ask(("letter", {"to": "cyril"}))] * 50
    desk = rig({"a": turns(*looping, say("done"))}, letter=letter)
    run = desk.advance(desk.start("a")).id
    for times in (MAX_SAME_REPLIES, 2 * MAX_SAME_REPLIES):
        assert len(desk.effects.calls) == times
        opened(desk, run, "hold")
        reason = (
            f"a repeats itself: letter had the same arguments and result {times} times in a row"
        )
        assert events(run)[-1]["reason"] == reason
        desk.answer(run, Verdict.CONTINUE)
    assert desk.answer(run, Verdict.STOP, "it goes in circles").status == "cancelled"
    assert verify(run).is_consistent


# Outages


@pytest.fixture
def faults() -> list[ModelFailure]:
    """The failures that the model of the agent gives before it replies."""
    return []


@pytest.fixture
def outage(rig: MakeBench, faults: list[ModelFailure], monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(retries, "MIN_ROUND_SECONDS", 0.0)
    monkeypatch.setattr(retries, "_wait", lambda *terms: timedelta())
    replies = turns(ask(("t", {})), say("done"))
    return rig({"a": lambda given: faults.pop(0) if faults else replies(given)}, t=IDEMPOTENT)


def test_a_long_outage_of_a_provider_fails_no_run(outage: Rig, faults: list[ModelFailure]) -> None:
    faults += [OUT] * 20
    run = outage.advance(outage.start("a"))
    assert (run.status, run.awaits, len(outage.effects.calls)) == ("completed", None, 1)


@pytest.mark.parametrize("fault", [OUT, NO_KEY])
def test_people_are_asked_once_the_time_is_over(
    outage: Rig, faults: list[ModelFailure], settings: Settings, fault: ModelFailure
) -> None:
    settings.SIGNOFF_OUTAGE_SECONDS = 0.0
    faults += [fault] * 99
    run = outage.advance(outage.start("a")).id
    opened(outage, run, "hold")
    (shown,) = outage.approvals.requests
    assert shown.sentence == f"No reply comes from the model of a: {fault.error}"
    assert shown.args["last_answer"] == fault.error
    assert types(run)[-1] == "GateOpened"
    assert outage.answer(run, Verdict.CONTINUE).status == "suspended", "it is out still"
    faults.clear()
    assert outage.answer(run, Verdict.CONTINUE).status == "completed"
    assert Gate.objects.filter(run=run).count() == 2


# Limits


def start(budget: BudgetLimits) -> UUID:
    with transaction.atomic():
        return create(agent="a", input={}, requester=ADA, budget=budget).run


def limits(run: UUID) -> list[tuple[Any, ...]]:
    """Return the exhausted limits at the last limit gate: owner, kind, amount."""
    found = [event for event in events(run) if event["type"] == "BudgetExceeded"]
    last = [event for event in found if event["gate"] == found[-1]["gate"]]
    return [(e["frame"], e["limit"], e["used"], e["allowed"]) for e in last]


def grant(desk: Rig, run: UUID, **amounts: int | None) -> str:
    desk.decide(opened(desk, run, "limit").id, Verdict.CONTINUE, result=amounts)
    return desk.advance(run).status


def stored(run: Run) -> Continuation:
    with pool.pooled() as connection:
        return load(connection, run.id, run.base, journal.read(connection, run.id)[1].text)


def test_a_run_without_turns_left_waits_for_a_grant(rig: MakeBench, continued: None) -> None:
    desk = rig({"a": turns(*(ask(("t", {"n": n})) for n in range(3)), say("done"))}, t=IDEMPOTENT)
    run = desk.advance(start(BudgetLimits(turns=2)))
    now = stored(run)
    assert (now.spent.turns, now.spent.calls, now.budget) == (2, 2, BudgetLimits(turns=2))
    assert now.short is not None
    assert (run.status, run.due_at, run.owner) == ("suspended", None, None)
    assert (len(desk.effects.models), len(desk.effects.calls)) == (2, 2)
    assert limits(run.id) == [(None, "turns", 2, 2)]
    (snapshot,) = desk.approvals.requests
    assert snapshot.sentence == "The run reached its limit: 2 of 2 turns"
    assert grant(desk, run.id, turns=1) == "suspended", "that is less than it needs"
    assert limits(run.id) == [(None, "turns", 3, 3)]
    assert grant(desk, run.id, turns=None) == "completed"
    assert types(run.id).count("BudgetGranted") == 2
    assert len(desk.effects.models) == 4


def test_children_of_one_turn_do_not_exceed_the_limit_together(rig: MakeBench) -> None:
    root = turns(ask(*((f"c{n}", {}) for n in range(3))), say("done"))
    desk = rig({"a": root, **{f"c{n}": turns(say("done")) for n in range(3)}})
    run = desk.advance(start(BudgetLimits(turns=3)))
    assert run.status == "suspended"
    assert len(desk.effects.models) == 3  # the root, and two of its three children
    assert limits(run.id) == [(None, "turns", 3, 3)]


def test_money_is_not_spent_on_a_model_without_a_price(rig: MakeBench) -> None:
    desk = rig({"a": turns(say("done"))})
    run = desk.advance(start(BudgetLimits(micros=1_000_000)))
    assert (run.status, desk.effects.models) == ("suspended", [])
    (snapshot,) = desk.approvals.requests
    assert "the model has no known price" in snapshot.sentence
    assert grant(desk, run.id, usd=None) == "completed"


def test_the_time_of_a_run_is_used_up_while_it_waits_for_a_retry(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ModelFailure(error="busy", retryable=True, retry_after=50.0))})
    began = timezone.now()
    run = desk.advance(start(BudgetLimits(seconds=20.0)))
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


def test_people_may_take_their_time(gated: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    run = gated.advance(start(BudgetLimits(seconds=60.0)))
    assert run.status == "suspended"
    assert stored(run).ticking is None
    assert verify(run.id).findings == ()
    (gate,) = gated.open_gates(run.id)
    gated.decide(gate.id, Verdict.APPROVE)
    week = run.created_at + timedelta(days=7)
    set_clock(monkeypatch, lambda: week)
    assert gated.advance(run.id).status == "completed"
    assert verify(run.id).findings == ()


def test_the_same_call_twice_in_one_turn_is_made_once(rig: MakeBench) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"x": 1}), ("t", {"x": 1}), ("t", {"x": 2})), say("done"))},
        t=FakeTool(gated=True),
    )
    run = desk.advance(desk.start("a"))
    assert [gate.call for gate in desk.open_gates(run.id)] == ["c1.0", "c1.2"]


# Expiry


@pytest.mark.parametrize("own", [None, 3600.0])
def test_a_gate_expires_after_the_time_of_its_tool_or_of_the_installation(
    rig: MakeBench, settings: Settings, own: float | None
) -> None:
    settings.SIGNOFF_APPROVAL_SECONDS = 100.0
    desk = rig({"a": turns(ask(("t", {})))}, t=FakeTool(gated=True, expires_in=own))
    desk.approvals.extends_by = 40
    run = desk.advance(desk.start("a"))
    (gate,) = desk.open_gates(run.id)
    assert run.due_at is not None
    assert run.due_at == desk.approvals.requests[0].expires_at
    assert run.created_at <= run.due_at - timedelta(seconds=(own or 100) + 40) <= gate.opened_at


# Cancelling


def test_a_running_call_of_a_cancelled_run_is_journaled(rig: MakeBench) -> None:
    def slow(request: ToolRequest) -> Outcome:
        aside(lambda: cancel(request.run))
        desk.heartbeat.check_signals(request.run)
        return ToolResult(value="done after all")

    desk = rig({"a": turns(ask(("t", {})), say("never said"))}, t=FakeTool(body=slow))
    run = desk.advance(desk.start("a"))
    assert run.status == "cancelled"
    assert "ToolReturned" in types(run.id)
    assert len(desk.effects.models) == 1


def test_an_approval_before_the_cancellation_takes_no_effect(rig: MakeBench) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"x": 1}), ("t", {"x": 2})), say("done"))}, t=FakeTool(gated=True)
    )
    run = desk.advance(desk.start("a")).id
    approved, other = (gate.id for gate in desk.open_gates(run))
    desk.decide(approved, Verdict.APPROVE)
    cancel(run, "wrong person")
    assert Gate.objects.get(state="closed").id == other
    assert desk.approvals.closed == [other]
    ended = desk.advance(run)
    assert (ended.status, ended.reason) == ("cancelled", "wrong person")
    assert types(run)[-3:] == ["Cancelling", "GateClosed", "Cancelled"]
    assert desk.effects.calls == []
    with pytest.raises(RunEnded):
        cancel(run)
    with pytest.raises((GateNotOpen, RunEnded)):
        desk.decide(other, Verdict.APPROVE)


# In doubt


@pytest.mark.parametrize(
    ("verdict", "told", "attempts"),
    [
        (Verdict.HAPPENED, {"outcome": "returned", "content": {"id": "<x>"}, "reported_by": "bea"}, [1]),
        (Verdict.RUN_AGAIN, {"outcome": "returned", "content": 2}, [1, 2]),
        (Verdict.GIVE_UP, {"outcome": "failed", "content": "no", "verdict": "give_up"}, [1]),
    ],
)  # fmt: skip
def test_the_settlement_of_a_doubt_is_told_to_the_model(
    rig: MakeBench, verdict: Verdict, told: dict[str, Any], attempts: list[int]
) -> None:
    tool = failing(1, Unknown(error="read timed out"))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a")).id
    gate = desk.open_gates(run)[0].id
    (snapshot,) = desk.approvals.requests
    (started,) = [event for event in events(run) if event["type"] == "ToolStarted"]
    assert (snapshot.gate, snapshot.kind) == (gate, "in_doubt")
    earliest = datetime.fromisoformat(str(started["at"])) + timedelta(seconds=30 + 10)
    assert snapshot.not_before == earliest, "its deadline and a lease later"
    reason, result = ("", {"id": "<x>"}) if verdict is Verdict.HAPPENED else ("no", None)
    desk.decide(gate, verdict, reason, result)
    assert desk.advance(run).status == "completed"
    assert [call.attempt for call in desk.effects.calls] == attempts
    assert len({call.key for call in desk.effects.calls}) == 1
    assert told.items() <= desk.heard().items()
    assert (desk.heard()["call"], desk.heard()["tool"]) == ("c1.0", "t")


def test_another_attempt_needs_an_approval_that_still_holds(rig: MakeBench) -> None:
    def body(request: ToolRequest) -> Outcome:
        desk.approvals.void = True
        return ToolFailure(error="refused", retryable=True)

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True, body=body))
    run = desk.advance(desk.start("a"))
    assert desk.answer(run.id).status == "suspended"
    assert len(desk.effects.calls) == 1
    assert len(desk.open_gates(run.id)) == 1
