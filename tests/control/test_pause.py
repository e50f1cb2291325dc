"""A paused run: nothing new starts, running calls are journaled, and the run resumes where it stopped."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from runtime.core.enums import Verdict
from runtime.errors import RunEnded
from runtime.models import Gate, Run, Signal
from runtime.ports.effects import ToolResult
from runtime.store import pool
from tests.support.engine import (
    MakeBench,
    Rig,
    cancel,
    claim,
    events,
    later,
    lose,
    pause,
    resume,
    set_clock,
    types,
)
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import Hold, holding, wait_until_blocked


@pytest.fixture
def gated(rig: MakeBench) -> Rig:
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True, expires_in=3600))


def test_a_run_paused_before_its_first_claim_starts_nothing(gated: Rig) -> None:
    run = gated.start("a")
    pause(run, "wait a minute")
    row = gated.advance(run)
    assert (row.status, row.due_at, row.owner) == ("paused", None, None)
    assert gated.effects.models == []
    assert events(run)[-1] == {"type": "Paused", "by": "ada", "reason": "wait a minute"}
    resume(run)
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


def test_a_pause_and_its_end_are_said_once_each_even_if_no_worker_saw_it(gated: Rig) -> None:
    run = gated.start("a")
    for act in (resume, pause, pause, resume, resume):
        act(run)
    assert gated.advance(run).status == "suspended"
    assert [one for one in types(run) if one in ("Paused", "Resumed")] == ["Paused", "Resumed"]
    assert [act for _, _, act, _ in gated.approvals.notes] == ["paused", "resumed"]


def test_a_paused_run_can_be_cancelled_and_is_then_not_held_up(gated: Rig) -> None:
    run = gated.start("a")
    pause(run)
    gated.advance(run)
    cancel(run)
    for status in ("cancelling", "cancelled"):
        for act in (pause, resume):
            with pytest.raises(RunEnded) as raised:
                act(run)
            assert raised.value.run_status == status
        assert gated.advance(run).status == "cancelled"
    Run.objects.filter(id=run).update(status="quarantined", ended_at=None)
    with pytest.raises(RunEnded):
        pause(run)


def test_a_worker_that_dies_in_a_pause_starts_nothing(gated: Rig) -> None:
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
