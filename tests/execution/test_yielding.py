"""A worker yields a run when it drains or other runs wait, and a waiting run keeps no slot or connection."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from runtime.broker import dispatch
from runtime.core.enums import EffectClass
from runtime.execution import yielding
from runtime.execution.claim import advance
from runtime.execution.concurrency import RunSlots
from runtime.models import Run
from runtime.ports.agents import TurnBoundary
from runtime.ports.effects import ModelAnswer, ModelRequest, Outcome, ToolRequest, ToolResult
from runtime.store import pool
from tests.support.engine import LONG, MakeBench, Rig, types
from tests.support.fake_ports import FakeTool, ask, say, turns

CALLS = 6
WAITING = 24  # more than the connections of pool, heartbeat and test


def successor(rig: MakeBench, like: Rig) -> Rig:
    """Another worker with the same agents."""
    return rig(like.effects.agents, **like.effects.tools)


@pytest.mark.parametrize("gated", [False, True])
def test_a_drain_journals_running_calls_and_starts_none(
    rig: MakeBench, hints: list[tuple[UUID, str]], gated: bool
) -> None:
    """A run that waits for people too is released without a hint."""

    def body(request: ToolRequest) -> Outcome:
        desk.heartbeat.drain(LONG)
        return ToolResult(value="done")

    calls = ask(("t", {}), ("u", {})) if gated else ask(("t", {}))
    desk = rig({"a": turns(calls, say("done"))}, t=FakeTool(body=body), u=FakeTool(gated=True))
    started = desk.start("a")
    hints.clear()
    run = desk.advance(started)
    assert (run.status, run.owner) == ("suspended" if gated else "queued", None)
    assert types(run.id)[-1] == "ToolReturned"
    assert len(desk.effects.models) == 1
    assert [sent for sent, _ in hints] == ([] if gated else [run.id])
    other = successor(rig, desk)
    assert other.advance(run.id).status == ("suspended" if gated else "completed")
    assert other.effects.calls == []


@pytest.mark.parametrize(
    ("effect", "status"), [(EffectClass.WRITE, "suspended"), (EffectClass.IDEMPOTENT, "completed")]
)
def test_after_a_drain_the_effect_class_decides_about_a_call(
    rig: MakeBench, effect: EffectClass, status: str
) -> None:
    release = threading.Event()

    def body(request: ToolRequest) -> Outcome:
        if request.attempt == 1:
            desk.heartbeat.drain(0.0)
            desk.heartbeat.drain(LONG)  # only the first word on the end counts
            release.wait(60)
        return ToolResult(value="done")

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(effect=effect, body=body))
    run = desk.advance(desk.start("a"))
    assert (run.status, run.owner) == ("queued", None)
    assert types(run.id)[-1] == "ToolStarted"
    assert desk.context.effect_pool.is_busy()
    other = successor(rig, desk)
    assert other.advance(run.id).status == status
    release.set()
    kinds = [gate.kind for gate in desk.open_gates(run.id)]
    assert kinds == (["in_doubt"] if effect is EffectClass.WRITE else [])


def test_an_intent_that_was_not_acted_on_is_taken_back(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain starts just before the tool would start."""

    def has_budget(_: object) -> bool:
        if desk.effects.models:
            desk.heartbeat.drain(LONG)
        return not desk.effects.models

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool())
    with monkeypatch.context() as patch:
        patch.setattr("runtime.execution.heartbeat.ClaimedRun.has_budget", has_budget)
        run = desk.advance(desk.start("a"))
    assert types(run.id)[-2:] == ["ToolStarted", "RetryScheduled"]
    assert desk.effects.calls == []
    assert not desk.context.effect_pool.is_busy()
    other = successor(rig, desk)
    assert other.advance(run.id).status == "completed"
    assert [call.attempt for call in other.effects.calls] == [2]


# Other runs that wait


def test_a_run_of_many_steps_yields_to_waiting_runs(
    rig: MakeBench, hints: list[tuple[UUID, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yielding, "STEPS", 4)
    calls = [ask(("t", {"n": number})) for number in range(CALLS)]
    desk = rig({"a": turns(*calls, say("done"))}, t=FakeTool())
    alone = desk.advance(desk.start("a"))
    assert (alone.status, alone.epoch) == ("completed", 1), "no other run waits"
    desk.effects.calls.clear()
    run, other = desk.start("a"), desk.start("a")
    hints.clear()
    row = desk.advance(run)
    assert (row.status, row.owner) == ("queued", None)
    assert hints == [(run, dispatch.NEW)]
    assert 0 < len(desk.effects.calls) < CALLS
    while desk.advance(other).status != "completed":
        assert desk.advance(run).owner is None
    while desk.advance(run).status != "completed":
        pass
    assert len(desk.effects.calls) == 2 * CALLS


def test_a_run_of_few_slow_steps_makes_room_after_its_time(
    rig: MakeBench, hints: list[tuple[UUID, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(yielding, "time", SimpleNamespace(monotonic=lambda: now))

    def slow(request: ToolRequest) -> ToolResult:
        nonlocal now
        now += 11.0
        return ToolResult(value=request.args)

    calls = [ask(("t", {"n": number})) for number in range(CALLS)]
    desk = rig({"a": turns(*calls, say("done"))}, t=FakeTool(body=slow))
    run, _ = desk.start("a"), desk.start("a")
    hints.clear()
    assert desk.advance(run).status == "queued"
    assert len(desk.effects.calls) == 3  # 33 s
    assert hints == [(run, dispatch.NEW)]


# Slots


def test_a_waiting_run_releases_its_slot_and_acquires_one_again() -> None:
    two, waiting, go_on = RunSlots(2), threading.Event(), threading.Event()

    def wait() -> None:
        with two.acquired(), two.released():
            waiting.set()
            go_on.wait(60)

    with ThreadPoolExecutor(3) as pool:
        waits = pool.submit(wait)
        assert waiting.wait(60)
        with two.acquired():
            assert two.any_free()
            with two.acquired():
                assert not two.any_free()
                go_on.set()
                assert not waits.done()  # no slot is free yet
        waits.result(60)


def test_runs_waiting_for_models_hold_no_slot_or_connection(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_wait, connected = threading.Barrier(WAITING), list[int]()

    def slow(request: ModelRequest) -> ModelAnswer:
        if all_wait.wait(30) == 0:  # all wait, or none of them is answered
            connected.append(_connected())
        return ask(("t", {}))

    def rule(boundary: TurnBoundary) -> str:
        return "" if Run.objects.exists() else "there are no runs"  # with Django's connection

    desk = rig({"a": slow}, t=FakeTool(gated=True))
    monkeypatch.setattr(desk.effects, "hold_reason", rule)
    bench = replace(desk.context, slots=RunSlots(2))
    runs = [desk.start("a") for _ in range(WAITING)]
    with ThreadPoolExecutor(WAITING) as pool:
        assert all(pool.map(lambda run: advance(run, bench), runs))
    assert [len(desk.open_gates(run)) for run in runs] == [1] * WAITING
    assert max(connected) < WAITING


def _connected() -> int:
    with pool.own() as own:
        row = own.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])
