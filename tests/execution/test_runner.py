"""A runner on real Postgres: gates, denial, nesting, recovery, tampering."""

import psycopg
import pytest
from django.db import DataError

from runtime.core.enums import EffectClass, Verdict
from runtime.models import Continuation, Gate, Run, Signal
from runtime.ports.effects import (
    ModelFailure,
    ModelRequest,
    Outcome,
    ToolFailure,
    ToolRequest,
    ToolResult,
)
from runtime.queries import runs
from tests.support.calls import around
from tests.support.engine import MakeBench, at_failpoint, lose, pause, types
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.threads import aside

IDEMPOTENT = FakeTool(effect=EffectClass.IDEMPOTENT)
GATED = FakeTool(gated=True)


def test_a_run_without_gates_completes_in_one_go(rig: MakeBench) -> None:
    desk = rig({"a": turns(ask(("t", {"x": 1})), say("done"))}, t=IDEMPOTENT)
    run = desk.advance(desk.start("a"))
    assert (run.status, run.output, run.owner, run.due_at) == ("completed", '"done"', None, None)
    assert types(run.id) == [
        "RunStarted",
        "FrameOpened",
        "ModelReplied",
        "CallAdmitted",
        "ToolStarted",
        "ToolReturned",
        "ModelReplied",
        "Completed",
    ]
    assert not Continuation.objects.filter(run=run).exists()


def test_gates_of_one_turn_open_together_and_are_decided_apart(rig: MakeBench) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"n": 1}), ("t", {"n": 2}), ("u", {"n": 3})), say("done"))},
        t=GATED,
        u=IDEMPOTENT,
    )
    run = desk.advance(desk.start("a"))
    assert (run.status, run.owner, run.lease_until) == ("suspended", None, None)
    gates = [gate.id for gate in desk.open_gates(run.id)]
    stored = runs.continuation(run.id) or {}
    assert (stored["position"], stored["head"]) == (run.position, run.head)
    assert [pending["gate"] for pending in stored["pending"]] == [str(gate) for gate in gates]
    assert [call.tool for call in desk.effects.calls] == ["u"]
    desk.decide(gates[0], Verdict.APPROVE)
    assert desk.advance(run.id).status == "suspended"
    assert [call.args["n"] for call in desk.effects.calls] == [3, 1]
    assert Gate.objects.get(id=gates[0]).state == "effective"
    assert not Signal.objects.exists()
    desk.decide(gates[1], Verdict.DENY, "not this one")
    assert desk.advance(run.id).status == "completed"
    assert [call.args["n"] for call in desk.effects.calls] == [3, 1]
    denied = {"call": "c1.1", "tool": "t", "outcome": "denied", "content": "not this one"}
    assert desk.heard(1) == denied


@pytest.mark.parametrize(
    ("tool", "outcome", "told"),
    [
        ("low", "failed", "broke"),
        ("nope", "refused", "there is no tool nope"),
        ("says_no", "failed", "username taken"),
    ],
)
def test_the_model_is_told_of_a_call_that_came_to_nothing(
    rig: MakeBench, tool: str, outcome: str, told: str
) -> None:
    desk = rig(
        {"a": turns(ask((tool, {})), say("ok")), "low": turns(ModelFailure(error="broke"))},
        says_no=FakeTool(body=lambda request: ToolFailure(error="username taken")),
    )
    run = desk.advance(desk.start("a"))
    assert (run.status, desk.open_gates(run.id)) == ("completed", [])
    assert (desk.heard()["tool"], desk.heard()["outcome"]) == (tool, outcome)
    assert told in str(desk.heard()["content"])


@pytest.mark.usefixtures("short_lease")
def test_a_model_call_whose_worker_died_is_made_again(rig: MakeBench) -> None:
    def reply(request: ModelRequest) -> Outcome:
        if len(desk.effects.models) == 1:
            desk.held(request.run).lost.set()
        return say("done")

    desk = rig({"a": reply})
    run = desk.start("a")
    assert desk.advance(run).status == "running"
    lose(run)
    assert desk.advance(run).status == "completed"
    assert len(desk.effects.models) == 2


def test_a_decision_that_comes_while_a_sibling_runs_is_not_lost(rig: MakeBench) -> None:
    def slow(request: ToolRequest) -> Outcome:
        aside(lambda: desk.decide(desk.open_gates(request.run)[0].id, Verdict.APPROVE))
        return ToolResult(value=1)

    agents = {"a": turns(ask(("t", {}), ("slow", {})), say("done"))}
    desk = rig(agents, t=GATED, slow=FakeTool(body=slow))
    assert desk.advance(desk.start("a")).status == "completed"


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.DENY])
def test_a_decision_that_is_not_confirmed_parks_the_run(rig: MakeBench, verdict: Verdict) -> None:
    """A decision about a parked run does not make it due."""
    desk = rig({"a": turns(ask(("t", {"x": 1}), ("t", {"x": 2})), say("done"))}, t=GATED)
    run = desk.advance(desk.start("a"))
    desk.approvals.forged = True
    assert desk.answer(run.id, verdict, "no").status == "quarantined"
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.DENY, "no")
    assert Run.objects.get(id=run.id).due_at is None
    assert desk.effects.calls == []


@pytest.mark.parametrize("change", ["the tool", "the decider's right"])
def test_an_approval_that_no_longer_holds_opens_a_new_gate(rig: MakeBench, change: str) -> None:
    desk = rig({"a": turns(ask(("t", {"x": 1})), say("done"))}, t=GATED)
    run = desk.advance(desk.start("a"))
    (first,) = desk.open_gates(run.id)
    if change == "the tool":
        desk.effects.tools["t"] = FakeTool(gated=True, effect=EffectClass.IDEMPOTENT)
    else:
        desk.approvals.void = True
    assert desk.answer(run.id).status == "suspended"
    (second,) = desk.open_gates(run.id)
    assert second.id != first.id
    assert desk.effects.calls == []
    desk.approvals.void = False
    assert desk.answer(run.id).status == "completed"
    assert len(desk.effects.calls) == 1


def test_a_worker_without_the_agent_leaves_the_run_untouched(rig: MakeBench) -> None:
    desk = rig({"a": turns(say("done"))})
    run = desk.start("a")
    stranger = rig({"b": turns(say("done"))})
    left = stranger.advance(run)
    assert (left.status, left.position, left.owner) == ("queued", 1, None)
    assert left.due_at is not None
    assert desk.advance(run).status == "completed"  # another one has it at once


@pytest.mark.parametrize("error", [ZeroDivisionError(), DataError("value too long")])
def test_a_fault_of_ours_is_an_alarm_and_backs_off_unless_it_lasts(
    rig: MakeBench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=GATED)
    run = desk.start("a")
    with monkeypatch.context() as patch:
        patch.setattr(desk.approvals, "open", broken)
        left = desk.advance(run)
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    if isinstance(error, DataError):
        assert (left.status, left.owner, left.due_at) == ("quarantined", None, None)
        assert "cannot be written: value too long" in str(left.reason)
        return
    assert (left.status, left.owner) == ("running", None)
    assert left.due_at is not None
    Run.objects.filter(id=run).update(due_at="2020-01-01T00:00:00Z")
    assert desk.advance(run).status == "suspended"


def test_a_decision_survives_losing_postgres_while_consumed(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker once lost such a decision: its verification failed after the signal counted as consumed."""
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=GATED)
    run = desk.start("a")
    desk.advance(run)
    (gate,) = desk.open_gates(run)
    desk.decide(gate.id, Verdict.APPROVE)
    failures = [psycopg.OperationalError("gone")]

    def fail_once(**_: object) -> None:
        if failures:
            raise failures.pop()

    around(monkeypatch, desk.approvals, "verify_decision", before=fail_once)
    assert desk.advance(run).status == "completed"


def test_the_first_step_consumes_a_signal_after_the_claim(rig: MakeBench) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=GATED)
    run = desk.advance(desk.start("a")).id
    desk.decide(desk.open_gates(run)[0].id, Verdict.APPROVE)
    with at_failpoint("before:ToolStarted", lambda: pause(run)):
        assert desk.advance(run).status == "paused"
    assert (Run.objects.get(id=run).epoch, desk.effects.calls) == (2, [])
