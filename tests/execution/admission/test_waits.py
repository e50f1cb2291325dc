"""Retries with waits, expiry, cancelling, and resolving calls in doubt, on real Postgres."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pytest_django import Settings

from runtime.core.enums import Verdict
from runtime.errors import GateNotOpen, RunEnded
from runtime.models import Gate
from runtime.ports.effects import (
    Outcome,
    ToolFailure,
    ToolRequest,
    ToolResult,
    Unknown,
)
from tests.support.engine import (
    MakeBench,
    Rig,
    cancel,
    events,
    failing,
    later,
    types,
)
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.threads import aside

# Retries


@pytest.mark.parametrize(("failures", "told"), [(2, 3), (9, "refused")])
def test_a_call_that_did_not_happen_is_tried_three_times(
    rig: MakeBench, failures: int, told: object
) -> None:
    tool = failing(failures, ToolFailure(error="refused", retryable=True))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "completed"
    assert [call.attempt for call in desk.effects.calls] == [1, 2, 3]
    assert len({call.key for call in desk.effects.calls}) == 1
    assert desk.heard()["content"] == told


def test_the_same_call_twice_in_one_turn_is_made_once(rig: MakeBench) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"x": 1}), ("t", {"x": 1}), ("t", {"x": 2})), say("done"))},
        t=FakeTool(gated=True),
    )
    run = desk.advance(desk.start("a"))
    assert [gate.call for gate in desk.open_gates(run.id)] == ["c1.0", "c1.2"]


# Expiry


@pytest.mark.parametrize("own", [None, 3600.0])
def test_an_expired_gate_denies_its_call(
    rig: MakeBench, settings: Settings, own: float | None
) -> None:
    settings.ABEYANCE_APPROVAL_SECONDS = 100.0
    tool = FakeTool(gated=True, expires_in=own)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a"))
    (gate,) = desk.open_gates(run.id)
    assert run.due_at is not None
    assert run.due_at == desk.approvals.snapshots[0].expires_at
    assert run.created_at <= run.due_at - timedelta(seconds=own or 100) <= gate.opened_at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.execution.commit.StepWriter.clock", lambda self: run.due_at)
        later(run.id)
        assert desk.advance(run.id).status == "completed"
    assert desk.effects.calls == []
    result = desk.heard()
    assert (result["outcome"], result["content"]) == ("denied", "expired without a decision")
    assert result["verdict"] == "expire"
    with pytest.raises((GateNotOpen, RunEnded)):
        desk.decide(gate.id, Verdict.APPROVE)


# Cancelling


def test_a_cancelled_run_closes_its_gates_and_starts_no_call(rig: MakeBench) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"x": 1}), ("t", {"x": 2})), say("done"))}, t=FakeTool(gated=True)
    )
    run = desk.advance(desk.start("a"))
    gates = {gate.id for gate in desk.open_gates(run.id)}
    cancel(run.id, "wrong person")
    assert set(Gate.objects.filter(state="closed").values_list("id", flat=True)) == gates
    assert set(desk.approvals.closed) == gates
    ended = desk.advance(run.id)
    assert (ended.status, ended.reason) == ("cancelled", "wrong person")
    assert types(run.id)[-4:] == ["Cancelling", "GateClosed", "GateClosed", "Cancelled"]
    assert desk.effects.calls == []
    with pytest.raises(RunEnded):
        cancel(run.id)
    with pytest.raises((GateNotOpen, RunEnded)):
        desk.decide(gates.pop(), Verdict.APPROVE)


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
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a"))
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
    cancel(run.id)
    assert desk.advance(run.id).status == "cancelled"
    assert desk.effects.calls == []


# In doubt


@pytest.fixture
def doubtful(rig: MakeBench) -> tuple[Rig, UUID, UUID]:
    """A write that was started and lost; its run and gate."""
    tool = failing(1, Unknown(error="read timed out"))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a")).id
    (gate,) = desk.open_gates(run)
    return desk, run, gate.id


@pytest.mark.parametrize(
    ("verdict", "told", "attempts"),
    [
        (Verdict.HAPPENED, {"outcome": "returned", "content": {"id": "<x>"}, "reported_by": "bea"}, [1]),
        (Verdict.RUN_AGAIN, {"outcome": "returned", "content": 2}, [1, 2]),
        (Verdict.GIVE_UP, {"outcome": "failed", "content": "no", "verdict": "give_up"}, [1]),
    ],
)  # fmt: skip
def test_the_settlement_of_a_doubt_is_told_to_the_model(
    doubtful: tuple[Rig, UUID, UUID], verdict: Verdict, told: dict[str, Any], attempts: list[int]
) -> None:
    desk, run, gate = doubtful
    (snapshot,) = desk.approvals.snapshots
    (started,) = [event for event in events(run) if event["type"] == "ToolStarted"]
    assert (snapshot.gate, snapshot.kind) == (gate, "in_doubt")
    earliest = datetime.fromisoformat(str(started["at"])) + timedelta(seconds=30 + 10)
    assert snapshot.not_before == earliest, "its deadline and a lease later"
    reason, result = ("", {"id": "<x>"}) if verdict is Verdict.HAPPENED else ("no", None)
    desk.decide(gate, verdict, reason, result)
    assert desk.advance(run).status == "completed"
    assert [call.attempt for call in desk.effects.calls] == attempts
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
