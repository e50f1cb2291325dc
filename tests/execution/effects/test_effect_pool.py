"""Running effects: deadlines, cancelled model calls, slots of two kinds, and tools that never return."""

import functools
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from runtime.core.run.planning import CallModel, StartTool
from runtime.core.values.enums import CallPreview, EffectClass, Verdict
from runtime.execution.claim import advance
from runtime.execution.commit import StepWriter
from runtime.execution.effects import perform
from runtime.execution.effects import pool as effect_pool
from runtime.execution.effects.pool import DeadlineTimer, EffectPool
from runtime.execution.effects.running import EffectFinished, KeptSlot, KeptSlots, RunningEffect
from runtime.execution.heartbeat import ClaimedRun
from runtime.management.commands.healthcheck import _WITHIN
from runtime.models import Run, WorkerProcess
from runtime.ports.effects import (
    Abort,
    Keep,
    ModelRequest,
    Outcome,
    PreviewRequest,
    ToolRequest,
    ToolResult,
)
from runtime.reads import workers as workers_query
from tests.execution.conftest import running
from tests.support.engine import LONG, Death, MakeBench, Rig, cancel, events, pause, types
from tests.support.fake_ports import FakeEffects, FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import aside, in_thread


@pytest.mark.parametrize("why", ["cancelled", "the lease was lost"])
def test_a_model_call_that_is_not_needed_ends(rig: MakeBench, why: str) -> None:
    over = threading.Event()

    def never(request: ModelRequest) -> Outcome:
        if why == "cancelled":
            aside(lambda: cancel(request.run))
        else:
            held = desk.held(request.run)
            held.lost.set()
            held.wake()
        over.wait(60)
        return say("too late")

    desk = rig({"a": never})
    run = desk.advance(desk.start("a"))
    over.set()
    assert len(desk.effects.ended) == 1
    assert "ModelReplied" not in types(run.id)
    if why != "cancelled":
        assert run.status == "running"
        return
    assert (run.status, run.reason) == ("cancelled", "enough")
    (failed,) = [event for event in events(run.id) if event["type"] == "ModelFailed"]
    assert (failed["error"], failed["partial"]) == ("ended", "so f")
    assert types(run.id)[-3:] == ["Cancelling", "ModelFailed", "Cancelled"]


@pytest.mark.parametrize("has_threads", [True, False])
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
    has_threads: bool,
) -> None:
    """Also in a process that may start no more threads."""
    monkeypatch.setattr(effect_pool, "DEADLINE_SLACK", 0.05)
    over, start = threading.Event(), threading.Thread.start

    def start_if_allowed(thread: threading.Thread) -> None:
        if not has_threads and thread._target is effect_pool._give_up:  # type: ignore[attr-defined]
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_allowed)

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
    if effect is EffectClass.WRITE:
        desk.context.effect_pool.close()
        assert desk.advance(run.id).status == "completed", "the late outcome settles the doubt"
        assert desk.heard()["content"] == 1


def test_model_calls_and_tools_do_not_take_each_other_s_slots() -> None:
    effects_pool = EffectPool(FakeEffects({}, {}), slots=1, models=2)
    model, tool = CallModel(frame="0"), StartTool(frame="0", call="c1.0", attempt=1)
    woken: list[str] = []
    assert effects_pool.reserve(tool, lambda: None)
    assert effects_pool.reserve(model, lambda: None)
    assert effects_pool.reserve(model, lambda: None)
    assert not effects_pool.reserve(model, lambda: woken.append("m"))
    assert not effects_pool.reserve(tool, lambda: woken.append("t"))
    effects_pool.release(model)
    assert woken == ["m"]
    effects_pool.release(tool)
    assert woken == ["m", "t"]
    effects_pool.close()


def test_a_late_preview_leaves_its_call_to_be_decided(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perform, "PREVIEW_SECONDS", 0.01)
    over = threading.Event()

    def slow(request: PreviewRequest) -> CallPreview:
        over.wait(60)
        return CallPreview()

    desk = rig(
        {"a": turns(ask(("t", "x"), ("u", "y")), say("done"))},
        t=FakeTool(gated=True, preview=slow),
        u=FakeTool(gated=True),
    )
    run = desk.advance(desk.start("a"))
    over.set()
    [previewed] = [event for event in events(run.id) if event["type"] == "CallPreviewed"]
    assert previewed["preview"]["missing"] == "it took longer than 0.01 s"
    assert types(run.id)[-3:] == ["CallPreviewed", "GateOpened", "GateOpened"]
    assert run.status == "suspended"


@pytest.mark.parametrize("isolated", [False, True])
def test_the_preview_before_a_call_is_made_once_and_its_slot_starts_the_call(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    """Another run wants the only slot, and would keep it for longer than a preview counts."""
    made: list[str] = []
    late = timedelta()

    def seen(request: PreviewRequest) -> CallPreview:
        made.append(request.key)
        if len(made) > 1:
            assert not slots.reserve(take)
        return CallPreview(material="m")

    def take() -> None:
        if not desk.effects.calls:
            assert slots.reserve(take)
            aside(keep)

    def keep() -> None:
        nonlocal late
        until(lambda: slots.waiting or None, "the run to wait for the slot again")
        late += timedelta(seconds=11)
        slots.release()

    tool = FakeTool(gated=True, preview=seen)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    desk.context = replace(desk.context, effect_pool=EffectPool(desk.effects, slots=1))
    slots = desk.context.effect_pool._tools
    run = desk.advance(desk.start("a"))
    real = StepWriter.read_clock
    monkeypatch.setattr(StepWriter, "read_clock", lambda writer: real(writer) + late)
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
    Run.objects.filter(id=run.id).update(isolated=isolated)
    desk.advance_once(run.id, isolated=isolated)
    assert (len(made), len(desk.effects.calls), slots._free) == (2, 1, 1)
    desk.context.effect_pool.close()


def test_a_kept_slot_is_freed_once_if_its_call_does_not_start() -> None:
    pool = EffectPool(FakeEffects({}, {}), slots=1)
    call = StartTool(frame="0", call="c1.0", attempt=1)
    of = running().request
    assert isinstance(of, ToolRequest)
    effect = RunningEffect(
        request=PreviewRequest(of=of, digest="d", deadline=1.0), submit=lambda _: None
    )
    assert pool.reserve(call, lambda: None)
    slot = KeptSlot(pool._tools.release)
    message = EffectFinished(effect=effect, outcome=ToolResult(value=1), slot=slot)
    kept = KeptSlots()
    kept.take_over(effect.request, slot)
    message.discard()
    assert pool._tools._free == 0
    assert kept.use(call)
    assert not kept.use(call)
    assert kept.put_back(call)
    kept.release()
    kept.release()
    assert pool._tools._free == 1
    pool.close()


@pytest.mark.parametrize("meanwhile", ["lost", "paused"])
def test_a_slot_passes_to_the_next_run_that_needs_one(rig: MakeBench, meanwhile: str) -> None:
    """Two slots for three runs: the second run waits for another slot, and the third waits behind it."""
    over = {run: threading.Event() for run in ("first", "second", "third")}

    def body(request: ToolRequest) -> Outcome:
        over[str(request.args).split()[0]].wait(60)
        return ToolResult(value=1)

    calls = {name: ask(("t", name)) for name in over}
    calls["second"] = ask(("t", "second"), ("t", "second again"))
    desk = rig(
        {name: turns(one, say("done")) for name, one in calls.items()}, t=FakeTool(body=body)
    )
    effects_pool = replace(desk.context, effect_pool=EffectPool(desk.effects, slots=2))
    slots = effects_pool.effect_pool._tools
    runs = {name: desk.start(name) for name in over}

    def stand(free: int, waiting: int) -> bool | None:
        return (slots._free, len(slots.waiting)) == (free, waiting) or None

    def lose(name: str) -> None:
        held = desk.held(runs[name])
        held.lost.set()
        held.wake()

    advancing = {}
    with ThreadPoolExecutor(3) as pool:
        for name, left in (("first", (1, 0)), ("second", (0, 1)), ("third", (0, 2))):
            advancing[name] = pool.submit(advance, runs[name], effects_pool)
            until(functools.partial(stand, *left), f"the {name} run to stand in line")
        if meanwhile == "lost":
            lose("second")
            assert advancing["second"].result(30)
        else:
            pause(runs["second"])
            until(lambda: "Paused" in types(runs["second"]) or None, "the second run to pause")
        lose("first")  # so that only the woken waiter can wake the next one
        assert advancing["first"].result(30)
        over["third"].set()
        over["first"].set()
        assert advancing["third"].result(30)
        over["second"].set()
    assert Run.objects.get(id=runs["third"]).status == "completed"
    effects_pool.effect_pool.close()


@pytest.mark.usefixtures("short_lease")
@pytest.mark.parametrize(
    ("why", "status", "last", "attempts"),
    [
        ("cancelled", "cancelled", ["Cancelling", "ToolFailed", "Cancelled"], []),
        ("drained", "queued", ["ToolStarted", "RetryScheduled"], []),
        ("late", "completed", ["ToolReturned", "ModelReplied", "Completed"], [2]),
    ],
)
def test_a_call_whose_intent_is_not_acted_on_is_taken_back(
    rig: MakeBench,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
    status: str,
    last: list[str],
    attempts: list[int],
) -> None:
    """It happens after the intent is committed and before the call starts, while the lease is in doubt."""
    done: list[str] = []

    def has_budget(held: ClaimedRun) -> bool:
        if done or not desk.effects.models:
            return True
        done.append(why)
        if why == "cancelled":
            aside(lambda: cancel(run))
        elif why == "drained":
            desk.heartbeat.drain(LONG)
        else:
            threading.Event().wait(1.1)
        held.signal_version = None
        held.wake()
        return False

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool())
    run = desk.start("a")
    with monkeypatch.context() as patch:
        patch.setattr(ClaimedRun, "has_budget", has_budget)
        assert desk.advance(run).status == status
    assert types(run)[-len(last) :] == last
    assert [call.attempt for call in desk.effects.calls] == attempts
    assert not desk.context.effect_pool.is_busy()
    if why == "late":
        (again,) = [event for event in events(run) if event["type"] == "RetryScheduled"]
        assert again["error"] == "it could not start in time, because Postgres was unreachable"
    if why == "drained":
        other = rig(desk.effects.agents, **desk.effects.tools)
        assert other.advance(run).status == "completed"
        assert [call.attempt for call in other.effects.calls] == [2]


def test_a_handler_that_delivers_twice_or_raises_is_heard_once() -> None:
    class Careless(FakeEffects):
        def start_model_call(
            self,
            request: ModelRequest,
            deliver: Callable[[Outcome], None],
            keep: Keep | None = None,
        ) -> Abort:
            deliver(say("first"))
            deliver(say("second"))
            raise KeyError("third")

    effects_pool = EffectPool(Careless({}, {}), slots=1, models=1)
    came: list[EffectFinished] = []
    request = ModelRequest(run=uuid4(), frame="0", agent="a", messages=(), deadline=5.0)
    assert effects_pool.reserve(CallModel(frame="0"), lambda: None)
    effects_pool.launch(RunningEffect(request=request, submit=came.append))
    assert [message.outcome for message in came] == [say("first")]
    assert effects_pool.reserve(CallModel(frame="0"), lambda: None)
    effects_pool.close()


@pytest.mark.parametrize(
    ("effect", "kind"),
    [(EffectClass.WRITE, "OutcomeUnknown"), (EffectClass.TRANSACTIONAL, "RetryScheduled")],
)
def test_a_call_whose_thread_fails_has_an_outcome(
    rig: MakeBench, effect: EffectClass, kind: str
) -> None:
    def body(_: ToolRequest) -> Outcome:
        raise Death

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(effect=effect, body=body))
    run = desk.advance_once(desk.start("a"))
    event, *_ = [event for event in events(run.id) if event["type"] == kind]
    assert event["error"] == "its thread failed: Death"


def test_deadlines_fire_in_order_unless_cancelled() -> None:
    timer = DeadlineTimer()
    rung: list[str] = []
    last = threading.Event()
    timer.after(0.005, lambda: rung.remove("an error"))
    timer.after(0.2, last.set)
    timer.after(0.1, lambda: rung.append("second"))
    cancel = timer.after(0.05, lambda: rung.append("cancelled"))
    timer.after(0.01, lambda: rung.append("first"))
    cancel()
    assert last.wait(60)
    assert rung == ["first", "second"]
    timer.close()


# Tools that never return


class Hang:
    """The body of tools that hang until the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def __call__(self, request: ToolRequest) -> Outcome:
        self.over.wait(60)
        return ToolResult(value=1)

    def worker(self, rig: MakeBench) -> Rig:
        """A worker with four slots, and an agent for each tool."""
        deadlines = {"soon": 0.05, "later": 1.0, "long": 60.0}
        tools = {name: FakeTool(deadline=one, body=self) for name, one in deadlines.items()}
        agents = {f"a_{name}": turns(ask((name, {})), say("done")) for name in (*tools, "ok")}
        return rig(agents, ok=FakeTool(), **tools)


@pytest.fixture
def hang(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
    monkeypatch.setattr(effect_pool, "DEADLINE_SLACK", 0.05)
    one = Hang()
    yield one
    one.over.set()


def test_a_worker_half_of_whose_slots_hang_takes_no_more_runs(
    rig: MakeBench, hang: Hang, caplog: pytest.LogCaptureFixture
) -> None:
    desk, other = hang.worker(rig), hang.worker(rig)
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
    desk, other = hang.worker(rig), hang.worker(rig)
    desk.advance_once(desk.start("a_soon"))
    busy = [desk.start(agent) for agent in ("a_long", "a_long", "a_later")]
    threads = [in_thread(functools.partial(advance, one, desk.context)) for one in busy]
    until(lambda: len(desk.effects.calls) == 4 or None, "every slot to be taken")
    run = desk.start("a_ok")
    assert "ToolStarted" not in types(desk.advance_once(run).id)
    assert other.advance(run).status == "completed"
    hang.over.set()
    for one in threads:
        one.join()


def test_hung_runs_are_cancelled(
    rig: MakeBench, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.execution.runner.CANCEL_GRACE", timedelta(seconds=0.05))
    desk = hang.worker(rig)
    run = desk.start("a_long")
    thread = in_thread(lambda: advance(run, desk.context))
    until(lambda: desk.effects.calls or None, "the tool to hang")
    cancel(run)
    desk.heartbeat.check_signals(run)
    thread.join(60)
    assert Run.objects.get(id=run).status == "cancelled"
    assert types(run)[-2:] == ["OutcomeUnknown", "Cancelled"]


def test_a_worker_whose_tools_hang_is_not_ready(rig: MakeBench, hang: Hang) -> None:
    desk, other = hang.worker(rig), hang.worker(rig)
    here = socket.gethostname()
    for one in (desk, other):
        worker = WorkerProcess.objects.filter(id=one.heartbeat.worker)
        until(worker.first, "the worker to beat")
    desk.heartbeat.retire(60.0)
    other.heartbeat.retire(60.0)
    until(lambda: not workers_query.has_live_worker(_WITHIN, here) or None, "no worker to be ready")
    assert WorkerProcess.objects.filter(hung=True).count() == 2


def test_a_call_that_ends_at_its_deadline_or_later_gives_its_slot_back() -> None:
    replaced: list[int] = []
    pool = EffectPool(FakeEffects({}, {}), slots=2, replace=lambda: replaced.append(1))
    ended, late, hung, last = (running() for _ in range(4))
    assert pool._free(ended)
    pool._overrun(ended)
    assert replaced == [], "it had ended"
    pool._overrun(late)
    assert not pool._free(late)
    assert replaced == [1], "half of two"
    pool._overrun(hung)
    pool._overrun(last)
    assert replaced == [1], "it says so once"
    pool.close()
