"""The kill switch: while an agent is stopped nothing new starts for it, and afterwards its runs go on."""

import threading
from uuid import UUID

import pytest

from runtime.control.kill_switches import disengage, engage, list_switches
from runtime.core.enums import Verdict
from runtime.errors import SwitchAlreadyEngaged, SwitchNotEngaged
from runtime.models import KillSwitch, Run
from runtime.ports.effects import ToolRequest, ToolResult
from runtime.store import pool
from runtime.upkeep import due_runs
from tests.support.engine import MakeBench, Rig, cancel, types
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.threads import aside


def put(agent: str = "") -> KillSwitch:
    return KillSwitch.objects.create(agent=agent, reason="because")


def lift() -> None:
    with pool.own() as own:
        own.execute("UPDATE runtime_stop SET lifted_at = clock_timestamp()")


def beaten(desk: Rig, run: UUID) -> None:
    """Wait for the heartbeat that reads the kill switches."""
    told = threading.Event()
    while not desk.held(run).kill_switches:
        told.wait(0.02)


@pytest.mark.parametrize("stopped", ["", "a", "b"])
def test_nothing_new_starts_and_the_run_stays_where_it_is(rig: MakeBench, stopped: str) -> None:
    """Stopped are all agents, the run's own, or the one inside it whose tool works on meanwhile."""

    def body(request: ToolRequest) -> ToolResult:
        aside(lambda: put(stopped))
        beaten(desk, request.run)
        return ToolResult(value="done")

    desk = rig(
        {"a": turns(ask(("b", {})), say("done")), "b": turns(ask(("t", {})), say("done"))},
        t=FakeTool(body=body),
    )
    run = desk.advance(desk.start("a"))
    assert (run.status, run.owner) == ("queued", None)
    assert types(run.id)[-1] == "ToolReturned"
    assert len(desk.effects.models) == 2
    assert run.due_at is not None
    if stopped != "b":
        assert desk.advance(run.id).epoch == run.epoch  # no worker claims it
        with pool.own() as own:
            assert due_runs.dispatch_window(own).hints == 0
    lift()
    Run.objects.filter(id=run.id).update(due_at=run.created_at)
    assert desk.advance(run.id).status == "completed"


def test_a_run_of_another_agent_goes_on(rig: MakeBench) -> None:
    put("b")
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool())
    assert desk.advance(desk.start("a")).status == "completed"


def test_a_stopped_run_can_be_cancelled(rig: MakeBench) -> None:
    put("a")
    desk = rig({"a": turns(say("done"))})
    run, other = desk.start("a"), desk.start("a")
    cancel(run)
    assert desk.advance(other).epoch == 0, "the signal of another run starts none"
    assert desk.advance(run).status == "cancelled"
    assert desk.effects.models == []


def test_a_stopped_run_consumes_decisions_and_starts_no_call(rig: MakeBench) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a"))
    put("a")
    (gate,) = desk.open_gates(run.id)
    desk.decide(gate.id, Verdict.APPROVE)
    assert desk.advance(run.id).status == "queued"
    assert types(run.id)[-1] == "GateDecided"
    assert desk.effects.calls == []
    lift()
    assert desk.advance(run.id).status == "completed"


@pytest.mark.django_db
def test_a_stop_is_put_once_and_lifted_once() -> None:
    stop = engage(agent="", reason="because", actor=None)
    with pytest.raises(SwitchAlreadyEngaged):
        engage(agent="", reason="again", actor=None)
    assert disengage(stop=stop.id, actor=None).lifted_at is not None
    with pytest.raises(SwitchNotEngaged):
        disengage(stop=stop.id, actor=None)
    assert [one.reason for one in list_switches(lifted=True, actor=None)] == ["because"]
