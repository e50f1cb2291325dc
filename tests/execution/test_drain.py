"""A draining worker starts nothing new, and journals running effects or leaves them to the next worker."""

import threading
from uuid import UUID

import pytest

from runtime.core.enums import EffectClass
from runtime.execution.claim import advance
from runtime.models import Run
from runtime.ports.effects import ModelRequest, Outcome, ToolRequest, ToolResult
from tests.support.engine import LONG, MakeBench, Rig, types
from tests.support.fake_ports import FakeTool, ask, say, turns


def successor(rig: MakeBench, like: Rig) -> Rig:
    """Another worker with the same agents."""
    return rig(like.effects.agents, **like.effects.tools)


def test_a_drain_journals_running_calls_and_starts_none(
    rig: MakeBench, hints: list[tuple[UUID, str]]
) -> None:
    def body(request: ToolRequest) -> Outcome:
        desk.heartbeat.drain(LONG)
        return ToolResult(value="done")

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(body=body))
    started = desk.start("a")
    hints.clear()
    run = desk.advance(started)
    assert (run.status, run.owner) == ("queued", None)
    assert types(run.id)[-1] == "ToolReturned"
    assert len(desk.effects.models) == 1
    assert [sent for sent, _ in hints] == [run.id]
    other = successor(rig, desk)
    assert other.advance(run.id).status == "completed"
    assert other.effects.calls == []


def test_a_worker_that_drains_claims_nothing(rig: MakeBench) -> None:
    desk = rig({"a": turns(say("done"))})
    desk.heartbeat.drain(LONG)
    run = desk.start("a")
    assert advance(run, desk.context) is False
    assert Run.objects.get(id=run).epoch == 0


def test_a_run_at_a_gate_is_released_as_suspended(
    rig: MakeBench, hints: list[tuple[UUID, str]]
) -> None:
    def body(request: ToolRequest) -> Outcome:
        desk.heartbeat.drain(LONG)
        return ToolResult(value="done")

    desk = rig(
        {"a": turns(ask(("t", {}), ("u", {})), say("done"))},
        t=FakeTool(body=body),
        u=FakeTool(gated=True),
    )
    started = desk.start("a")
    hints.clear()
    run = desk.advance(started)
    assert (run.status, hints) == ("suspended", [])
    assert run.due_at == desk.approvals.snapshots[0].expires_at


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
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool())
    monkeypatch.setattr(
        "runtime.execution.heartbeat.ClaimedRun.has_budget", lambda held: _drained(desk)
    )
    run = desk.advance(desk.start("a"))
    assert types(run.id)[-2:] == ["ToolStarted", "RetryScheduled"]
    assert desk.effects.calls == []
    assert not desk.context.effect_pool.is_busy()
    monkeypatch.undo()
    other = successor(rig, desk)
    assert other.advance(run.id).status == "completed"
    assert [call.attempt for call in other.effects.calls] == [2]


def _drained(desk: Rig) -> bool:
    """Start the drain just before the first tool would start; model calls are allowed."""
    if desk.effects.models:
        desk.heartbeat.drain(LONG)
        return False
    return True


def test_only_the_first_word_on_the_end_counts(rig: MakeBench) -> None:
    desk = rig({})
    desk.heartbeat.drain(0.0)
    desk.heartbeat.drain(LONG)
    assert desk.heartbeat.draining.is_over()


def test_the_next_worker_repeats_a_drained_model_call(rig: MakeBench) -> None:
    release = threading.Event()

    def reply(request: ModelRequest) -> Outcome:
        if not desk.heartbeat.draining.started:
            desk.heartbeat.drain(0.0)
            release.wait(60)
        return say("done")

    desk = rig({"a": reply})
    run = desk.advance(desk.start("a"))
    assert run.status == "queued"
    other = successor(rig, desk)
    assert other.advance(run.id).status == "completed"
    release.set()
