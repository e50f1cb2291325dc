"""A paused run: nothing new starts, running calls are journaled, and the run resumes where it stopped."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from runtime.control.pause import pause as pause_run
from runtime.control.pause import resume as resume_run
from runtime.core.enums import EffectClass, Verdict
from runtime.errors import RunEnded
from runtime.models import Gate, Run, Signal
from runtime.ports.access import Actor
from runtime.ports.effects import ToolFailure, ToolResult
from runtime.store import pool
from tests.support.engine import (
    RARELY,
    MakeBench,
    Rig,
    cancel,
    claim,
    events,
    failing,
    later,
    lose,
    set_clock,
    types,
)
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import Hold, holding, wait_until_blocked

BEA = Actor(person="bea")


def pause(run: UUID, reason: str = "") -> bool:
    """Pause it, and return whether that sent a signal."""
    before = _signals(run)
    pause_run(run=run, actor=BEA, reason=reason)
    return _signals(run) > before


def resume(run: UUID) -> bool:
    before = _signals(run)
    resume_run(run=run, actor=BEA)
    return _signals(run) > before


def _signals(run: UUID) -> int:
    return Run.objects.values_list("mailbox", flat=True).get(id=run)


@pytest.fixture
def gated(rig: MakeBench) -> Rig:
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True, expires_in=3600))


def test_a_run_paused_before_its_first_claim_starts_nothing(gated: Rig) -> None:
    run = gated.start("a")
    assert pause(run, "wait a minute")
    row = gated.advance(run)
    assert (row.status, row.due_at, row.owner) == ("paused", None, None)
    assert gated.effects.models == []
    assert events(run)[-1] == {"type": "Paused", "by": "bea", "reason": "wait a minute"}
    assert resume(run)
    assert gated.advance(run).status == "suspended"


def test_a_decision_in_a_pause_is_kept_and_takes_effect_after_it(gated: Rig) -> None:
    run = gated.start("a")
    gated.advance(run)
    pause(run)
    paused = gated.advance(run)
    gate = gated.open_gates(run)[0]
    assert paused.status == "paused"
    assert paused.due_at is not None
    assert paused.due_at > timezone.now() + timedelta(minutes=50)
    gated.decide(gate.id, Verdict.APPROVE)
    row = gated.advance(run)
    assert (row.status, row.due_at, gated.effects.calls) == ("paused", None, [])
    assert Gate.objects.get(id=gate.id).state == "effective"
    resume(run)
    assert gated.advance(run).status == "completed"
    assert len(gated.effects.calls) == 1


def test_a_gate_expires_in_a_pause(gated: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = gated
    run = desk.start("a")
    for act in (pause, resume, pause):
        act(run)
        desk.advance(run)
    assert desk.open_gates(run)
    set_clock(monkeypatch, lambda: timezone.now() + timedelta(hours=2))
    later(run)
    row = desk.advance(run)
    assert (row.status, row.due_at, desk.open_gates(run)) == ("paused", None, [])
    resume(run)
    assert desk.advance(run).status == "completed"
    assert desk.effects.calls == []


def test_a_wait_that_ends_in_a_pause_goes_on_after_it(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.9)
    tool = failing(1, ToolFailure(error="busy", retryable=True))
    waiting = FakeTool(effect=EffectClass.READ, body=tool.body, retry=RARELY)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=waiting)
    run = desk.start("a")
    assert desk.advance(run).status == "waiting"
    pause(run)
    assert (desk.advance(run).due_at, desk.advance(run).status) == (None, "paused")
    set_clock(monkeypatch, lambda: timezone.now() + timedelta(hours=2))
    later(run)
    assert desk.advance(run).status == "paused"
    assert len(desk.effects.calls) == 1
    resume(run)
    assert desk.advance(run).status == "completed"
    assert len(desk.effects.calls) == 2


def test_running_calls_of_a_paused_run_are_journaled(rig: MakeBench) -> None:
    hold = Hold(ToolResult(value="done in the pause"))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(body=hold))
    run = desk.start("a")
    with holding(desk, run, hold):
        pause(run)
        desk.heartbeat.check_signals(run)
        until(lambda: Run.objects.get(id=run).status == "paused" or None, "the pause")
    row = Run.objects.get(id=run)
    assert (row.status, row.due_at, row.owner) == ("paused", None, None)
    assert types(run)[-2:] == ["Paused", "ToolReturned"]
    assert len(desk.effects.models) == 1
    resume(run)
    assert desk.advance(run).status == "completed"


def test_a_reply_in_a_pause_is_kept_and_its_calls_wait(rig: MakeBench) -> None:
    hold = Hold(turns(ask(("t", {})), say("done")))
    desk = rig({"a": hold}, t=FakeTool())
    run = desk.start("a")
    with holding(desk, run, hold):
        pause(run)
        desk.heartbeat.check_signals(run)
    assert types(run)[-1] in ("ModelReplied", "Paused")
    assert (Run.objects.get(id=run).status, desk.effects.calls) == ("paused", [])
    resume(run)
    assert desk.advance(run).status == "completed"
    assert len(desk.effects.models) == 2


def test_a_paused_run_can_be_cancelled(gated: Rig) -> None:
    run = gated.start("a")
    gated.advance(run)
    pause(run)
    gated.advance(run)
    cancel(run)
    assert gated.advance(run).status == "cancelled"
    assert types(run)[-1] == "Cancelled"


def test_a_pause_and_its_end_are_said_once_each(gated: Rig) -> None:
    run = gated.start("a")
    assert not resume(run)
    assert pause(run)
    assert not pause(run)
    gated.advance(run)
    assert not pause(run)
    assert resume(run)
    assert not resume(run)
    gated.advance(run)
    assert not resume(run)
    assert [one for one in types(run) if one in ("Paused", "Resumed")] == ["Paused", "Resumed"]
    assert [act for _, _, act, _ in gated.approvals.notes] == ["paused", "resumed"]


def test_a_pause_that_no_worker_saw_is_journaled(gated: Rig) -> None:
    run = gated.start("a")
    pause(run)
    resume(run)
    assert gated.advance(run).status == "suspended"
    assert [one for one in types(run) if one in ("Paused", "Resumed")] == ["Paused", "Resumed"]


def test_a_run_that_ends_or_is_over_is_not_held_up(gated: Rig) -> None:
    run = gated.start("a")
    gated.advance(run)
    cancel(run)
    for act in (pause, resume):
        with pytest.raises(RunEnded) as raised:
            act(run)
        assert raised.value.run_status == "cancelling"
    gated.advance(run)
    with pytest.raises(RunEnded) as raised:
        pause(run)
    assert raised.value.run_status == "cancelled"
    Run.objects.filter(id=run).update(status="quarantined", ended_at=None)
    with pytest.raises(RunEnded):
        pause(run)


def test_a_worker_that_dies_in_a_pause_starts_nothing(gated: Rig, settings: Settings) -> None:
    run = gated.start("a")
    pause(run)
    gated.advance(run)
    Run.objects.filter(id=run).update(due_at=timezone.now())  # a worker has it, and dies
    with pool.pooled() as held:
        assert claim(held, run) is not None
    assert Run.objects.get(id=run).status == "paused"
    lose(run)
    assert gated.advance(run).status == "paused"
    assert gated.effects.models == []


def test_a_signal_with_the_row_lock_is_not_lost_at_suspension(rig: MakeBench) -> None:
    """The signal's transaction raised the mailbox and is not committed when the worker wants to let go."""
    hold = Hold(ask(("t", {})))
    desk = rig({"a": hold}, t=FakeTool(gated=True))
    run = desk.start("a")
    with holding(desk, run, hold), transaction.atomic():
        cancel(run)
        hold.go_on.set()
        wait_until_blocked()
    row = Run.objects.get(id=run)
    assert (row.status, row.reason) == ("cancelled", "enough")
    assert not Signal.objects.filter(run=run).exists()
    assert desk.open_gates(run) == []
