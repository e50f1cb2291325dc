"""Tools that never return: the worker says so, takes no more runs, and gives back those that wait for a slot."""

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from runtime.control.cancel import cancel
from runtime.core.enums import EffectClass
from runtime.execution.claim import advance
from runtime.execution.effects import pool as effect_pool
from runtime.execution.effects.pool import EffectPool
from runtime.execution.effects.running import RunningEffect
from runtime.management.commands.alive import _WITHIN
from runtime.models import Run, Worker
from runtime.ports.effects import Outcome, ToolRequest, ToolResult
from runtime.queries import workers as workers_query
from tests.support.engine import ADA, MakeBench, Rig, types
from tests.support.fake_ports import FakeEffects, FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import in_thread


class Hang:
    """The body of tools that hang until the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def __call__(self, request: ToolRequest) -> Outcome:
        self.over.wait(60)
        return ToolResult(value=1)

    def tool(self, deadline: float) -> FakeTool:
        return FakeTool(effect=EffectClass.WRITE, deadline=deadline, body=self)


@pytest.fixture
def hang(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
    monkeypatch.setattr(effect_pool, "DEADLINE_SLACK", 0.05)
    one = Hang()
    yield one
    one.over.set()


def workers(rig: MakeBench, hang: Hang) -> tuple[Rig, Rig]:
    """Two with the same agents and four slots each."""
    names = {"soon": 0.05, "later": 1.0, "long": 60.0}
    tools = {name: hang.tool(deadline) for name, deadline in names.items()}
    agents = {f"a_{name}": turns(ask((name, {})), say("done")) for name in (*names, "ok")}
    return rig(agents, ok=FakeTool(), **tools), rig(agents, ok=FakeTool(), **tools)


def in_background(desk: Rig, agent: str) -> tuple[Run, threading.Thread]:
    run = Run.objects.get(id=desk.start(agent))
    return run, in_thread(lambda: advance(run.id, desk.context))


def test_a_worker_half_of_whose_slots_hang_takes_no_more_runs(
    rig: MakeBench, hang: Hang, caplog: pytest.LogCaptureFixture
) -> None:
    desk, other = workers(rig, hang)
    assert desk.advance_once(desk.start("a_soon")).status == "suspended"
    assert "keeps its slot: 1 of 4 slots" in caplog.text
    assert not desk.heartbeat.draining.started
    assert desk.advance_once(desk.start("a_soon")).status == "suspended"
    until(lambda: desk.heartbeat.draining.started or None, "the worker to stop")
    (said,) = [one.message for one in caplog.records if one.levelname == "CRITICAL"]
    assert said.endswith(
        "2 of its 4 tool slots are held by calls past their deadline (tools: soon)"
    )
    run = desk.start("a_ok")
    assert advance(run, desk.context) is False
    assert other.advance(run).status == "completed"


def test_a_run_that_waits_for_a_slot_is_given_to_another_worker(rig: MakeBench, hang: Hang) -> None:
    desk, other = workers(rig, hang)
    desk.advance_once(desk.start("a_soon"))
    busy = [in_background(desk, agent) for agent in ("a_long", "a_long", "a_later")]
    until(lambda: len(desk.effects.calls) == 4 or None, "every slot to be taken")
    run, thread = in_background(desk, "a_ok")
    thread.join(60)
    assert not thread.is_alive()
    assert "ToolStarted" not in types(run.id)
    assert other.advance(run.id).status == "completed"
    hang.over.set()
    for _, one in busy:
        one.join()


def test_a_run_with_a_hung_tool_can_be_cancelled(
    rig: MakeBench, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.execution.runner.CANCEL_GRACE", timedelta(seconds=0.05))
    desk, _ = workers(rig, hang)
    run, thread = in_background(desk, "a_long")
    until(lambda: desk.effects.calls or None, "the tool to hang")
    cancel(run=run.id, actor=ADA, reason="it hangs")
    desk.heartbeat.check_signals(run.id)
    thread.join(60)
    assert not thread.is_alive()
    run.refresh_from_db()
    assert (run.status, run.owner) == ("cancelled", None)
    assert types(run.id)[-2:] == ["OutcomeUnknown", "Cancelled"]


def test_a_worker_whose_tools_hang_is_not_ready(rig: MakeBench, hang: Hang) -> None:
    desk, other = workers(rig, hang)
    here = socket.gethostname()
    for one in (desk, other):
        worker = Worker.objects.filter(id=one.heartbeat.worker)
        until(worker.first, "the worker to beat")
    desk.heartbeat.retire(60.0)
    other.heartbeat.retire(60.0)
    until(lambda: not workers_query.worker_beats(_WITHIN, here) or None, "no worker to be ready")
    assert Worker.objects.filter(hung=True).count() == 2


def _call(tool: str) -> RunningEffect:
    place = {"run": uuid4(), "frame": "0", "call": "c1.0", "attempt": 1, "agent": "a"}
    request = ToolRequest(tool=tool, args={}, key="k", deadline=60.0, **place)  # type: ignore[arg-type]
    return RunningEffect(request=request, submit=lambda message: None)


def test_a_call_that_ends_in_the_same_moment_is_not_counted() -> None:
    replaced: list[int] = []
    pool = EffectPool(FakeEffects({}, {}), slots=2, replace=lambda: replaced.append(1))
    ended, late = _call("t"), _call("t")
    assert pool._free(ended)
    pool._overrun(ended)
    assert replaced == []
    pool._overrun(late)
    assert not pool._free(late)
    pool._overrun(_call("t"))
    assert replaced == [1]  # it says so once
    pool.close()


def test_a_hung_call_that_ends_gives_its_slot_back(caplog: pytest.LogCaptureFixture) -> None:
    replaced: list[int] = []
    pool = EffectPool(FakeEffects({}, {}), slots=4, replace=lambda: replaced.append(1))
    for _ in range(3):
        late = _call("t")
        pool._overrun(late)
        assert not pool._free(late)
    assert replaced == []
    assert caplog.text.count("1 of 4 slots are lost") == 3
    pool.close()
