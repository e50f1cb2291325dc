"""Effects under way: deadlines that hold, model calls that are ended, and slots of two kinds."""

import threading
from collections.abc import Callable
from uuid import uuid4

import pytest

from runtime import executor
from runtime.alarm import Alarm
from runtime.core.decisions import EffectClass
from runtime.core.effects import AskModel, StartTool
from runtime.executor import Executor
from runtime.ports import Abort, ModelRequest, Outcome, ToolRequest, ToolResult
from tests.fakes.ports import FakeEffects, FakeTool, ask, say, turns
from tests.runtime.conftest import MakeBench
from tests.runtime.test_advance import events, types
from tests.runtime.test_waits import _in_a_thread, cancel


def test_a_model_call_is_ended_when_its_run_is_cancelled_and_what_came_is_evidence(
    rig: MakeBench,
) -> None:
    over = threading.Event()

    def never(request: ModelRequest) -> Outcome:
        _in_a_thread(lambda: cancel(request.run))
        over.wait(60)
        return say("too late")

    desk = rig({"a": never})
    run = desk.advance(desk.start("a"))
    over.set()
    assert (run.status, run.reason) == ("cancelled", "enough")
    assert len(desk.effects.ended) == 1
    (failed,) = [event for event in events(run.id) if event["type"] == "ModelFailed"]
    assert (failed["error"], failed["partial"]) == ("ended", "so f")
    assert types(run.id)[-3:] == ["Cancelling", "ModelFailed", "Cancelled"]


def test_a_worker_that_lost_its_lease_ends_the_model_calls_nobody_waits_for(
    rig: MakeBench,
) -> None:
    over = threading.Event()

    def never(request: ModelRequest) -> Outcome:
        held = desk.held(request.run)
        held.lost.set()
        held.wake()
        over.wait(60)
        return say("too late")

    desk = rig({"a": never})
    run = desk.advance(desk.start("a"))
    over.set()
    assert run.status == "running"
    assert len(desk.effects.ended) == 1
    assert "ModelReplied" not in types(run.id)


@pytest.mark.parametrize(
    ("effect", "status", "attempts"),
    [(EffectClass.WRITE, "suspended", 1), (EffectClass.READ, "completed", 2)],
)
def test_a_tool_that_overruns_its_deadline_is_waited_for_no_more(
    rig: MakeBench,
    monkeypatch: pytest.MonkeyPatch,
    effect: EffectClass,
    status: str,
    attempts: int,
) -> None:
    monkeypatch.setattr(executor, "LATE", 0.05)
    over = threading.Event()

    def body(request: ToolRequest) -> Outcome:
        if request.attempt == 1:
            over.wait(60)
        return ToolResult(value=request.attempt)

    tool = FakeTool(effect=effect, deadline=0.05, body=body)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a"))
    over.set()
    assert run.status == status
    assert len(desk.effects.calls) == attempts
    kind = "OutcomeUnknown" if effect is EffectClass.WRITE else "RetryScheduled"
    (late,) = [event for event in events(run.id) if event["type"] == kind]
    assert late["error"] == "it did not end within 0.05 s"
    results = [event["result"] for event in events(run.id) if event["type"] == "ToolReturned"]
    assert results == [2] * (attempts - 1)


def test_model_calls_and_tools_do_not_take_each_other_s_slots() -> None:
    bench = Executor(FakeEffects({}, {}), slots=1, models=2)
    model, tool = AskModel(frame="0"), StartTool(frame="0", call="c1.0", attempt=1)
    woken: list[str] = []
    assert bench.reserve(tool, lambda: None)
    assert [bench.reserve(model, lambda: woken.append("m")) for _ in range(3)] == [
        True,
        True,
        False,
    ]
    assert not bench.reserve(tool, lambda: woken.append("t"))
    bench.give_back(model)
    assert woken == ["m"]
    bench.give_back(tool)
    assert woken == ["m", "t"]
    bench.close()


def test_a_handler_that_delivers_twice_or_raises_is_heard_once() -> None:
    class Careless(FakeEffects):
        def begin(self, request: ModelRequest, deliver: Callable[[Outcome], None]) -> Abort:
            deliver(say("first"))
            deliver(say("second"))
            raise KeyError("third")

    bench = Executor(Careless({}, {}), slots=1, models=1)
    came: list[Outcome] = []
    request = ModelRequest(run=uuid4(), frame="0", agent="a", messages=(), deadline=5.0)
    assert bench.reserve(AskModel(frame="0"), lambda: None)
    bench.launch(request, came.append)
    assert came == [say("first")]
    assert bench.reserve(AskModel(frame="0"), lambda: None)
    bench.close()


def test_deadlines_ring_in_their_order_and_not_when_they_were_dropped() -> None:
    alarm = Alarm()
    rung: list[str] = []
    last = threading.Event()
    alarm.after(0.2, last.set)
    alarm.after(0.1, lambda: rung.append("second"))
    drop = alarm.after(0.05, lambda: rung.append("dropped"))
    alarm.after(0.01, lambda: rung.append("first"))
    drop()
    assert last.wait(10)
    assert rung == ["first", "second"]
    alarm.close()
