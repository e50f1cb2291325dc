"""Runs whose workers die: suspected, isolated, then cleared or quarantined with the evidence."""

from contextlib import suppress
from uuid import UUID, uuid4

import pytest
from pytest_django import Settings

from runtime.broker import dispatch
from runtime.control.messages import send_message
from runtime.core.enums import EffectClass
from runtime.errors import RunEnded
from runtime.execution.claim import advance
from runtime.models import LostLease, Run, Worker
from runtime.store import pool
from runtime.upkeep import due_runs
from tests.support.engine import ADA, Death, MakeBench, Rig, at_failpoint, claim, die, lose, types
from tests.support.fake_ports import FakeTool, ask, say, turns


def die_at(desk: Rig, run: UUID, types_so_far: str, *, isolated: bool = False) -> None:
    """Let a worker claim the run and die right after it commits the next event of this kind."""
    with at_failpoint(f"committed:{types_so_far}", die), pytest.raises(Death):
        advance(run, desk.context, isolated=isolated)
    lose(run)


def repeatable(rig: MakeBench, effect: EffectClass = EffectClass.IDEMPOTENT) -> Rig:
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(effect=effect))


def test_a_run_isolated_after_a_crash_returns_to_normal(
    rig: MakeBench, hints: list[tuple[UUID, str]]
) -> None:
    desk = repeatable(rig)
    run = desk.start("a")
    die_at(desk, run, "ToolStarted")
    hints.clear()
    assert desk.advance_once(run).isolated
    assert hints == [(run, dispatch.ISOLATED)]
    assert desk.effects.calls == []
    assert desk.advance_once(run).owner is None  # an ordinary worker does not take it
    assert desk.effects.calls == []
    with pool.own() as own:
        due_runs.dispatch_window(own)
    assert hints[-1] == (run, dispatch.ISOLATED)
    advance(run, desk.context, isolated=True)
    row = Run.objects.get(id=run)
    assert (row.status, row.isolated, row.losses) == ("queued", False, 0)
    assert types(run)[-1] == "ToolReturned"
    assert len(desk.effects.models) == 1  # the trial is over; an ordinary worker asks the model
    assert desk.advance_once(run).status == "completed"


def test_a_run_that_keeps_killing_workers_is_quarantined(
    rig: MakeBench, settings: Settings
) -> None:
    settings.ABEYANCE_POISON_LOSSES = 2
    desk = repeatable(rig)
    run = desk.start("a")
    Worker.objects.update_or_create(
        id=desk.heartbeat.worker, defaults={"host": "here", "process": 7}
    )
    die_at(desk, run, "ToolStarted")
    desk.advance_once(run)
    for _ in range(2):
        die_at(desk, run, "ToolStarted", isolated=True)
    advance(run, desk.context, isolated=True)
    row = Run.objects.get(id=run)
    assert (row.status, row.due_at, row.owner) == ("quarantined", None, None)
    assert str(row.reason).startswith("2 workers in a row died")
    assert desk.effects.calls == []
    evidence = list(LostLease.objects.order_by("id"))
    assert [loss.isolated for loss in evidence] == [False, True, True]
    assert {(loss.host, loss.process) for loss in evidence} == {("here", 7)}
    assert evidence[-1].position == row.position
    assert advance(run, desk.context, isolated=True) is False


def test_a_write_is_not_suspected_because_it_is_in_doubt(rig: MakeBench) -> None:
    desk = repeatable(rig, EffectClass.WRITE)
    run = desk.start("a")
    die_at(desk, run, "ToolStarted")
    row = desk.advance_once(run)
    assert (row.status, row.isolated) == ("suspended", False)


def test_one_loss_during_a_model_call_isolates_no_run(rig: MakeBench) -> None:
    desk = repeatable(rig)
    run = desk.start("a")
    die_at(desk, run, "FrameOpened")
    row = desk.advance_once(run)
    assert (row.status, row.isolated, row.losses) == ("completed", False, 0)
    assert LostLease.objects.filter(run=run).count() == 1


def test_a_run_that_kills_workers_on_loading_is_quarantined(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.ABEYANCE_POISON_LOSSES = 2
    desk = repeatable(rig)
    run, deaths = desk.start("a"), 0
    monkeypatch.setattr("runtime.execution.claim._load", die)
    while (row := Run.objects.get(id=run)).status != "quarantined":
        with suppress(RunEnded):
            send_message(run=run, actor=ADA, text="How is it going?")
        try:
            advance(run, desk.context, isolated=row.isolated)
        except Death:
            deaths += 1
            lose(run)
    # Two at one position, and two alone.
    assert (deaths, LostLease.objects.filter(run=run).count()) == (4, 4)


CROWD = 12


def crowd(desk: Rig, worker: UUID) -> list[UUID]:
    """Runs that asked their model for the second time when that worker died."""
    runs = [desk.start("a") for _ in range(CROWD)]
    lose_again(runs, uuid4())
    with pool.own() as own:
        assert all(claim(own, run) for run in runs)
    lose_again(runs, worker)
    return runs


def lose_again(runs: list[UUID], worker: UUID) -> None:
    """Let that worker hold these runs and die."""
    Run.objects.filter(id__in=runs).update(owner=uuid4(), worker=worker)
    lose(*runs)


def test_few_runs_lost_together_are_suspected(rig: MakeBench) -> None:
    """They only waited for their models: those that are not suspected continue at once."""
    desk = repeatable(rig)
    rows = [desk.advance_once(run) for run in crowd(desk, uuid4())]
    assert [row.isolated for row in rows].count(True) == 4
    assert [row.status for row in rows].count("completed") == CROWD - 4


def test_the_deadly_run_of_a_crowd_is_suspected_soon(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs lost with it are suspected in groups, each twice as large, so any one is found soon."""
    desk = repeatable(rig)
    runs = crowd(desk, uuid4())
    monkeypatch.setattr("runtime.execution.claim._load", die)
    suspected = []
    for _ in range(3):
        for run in Run.objects.filter(id__in=runs, isolated=False):
            with suppress(Death):
                desk.advance_once(run.id)
        left = list(Run.objects.filter(id__in=runs, isolated=False).values_list("id", flat=True))
        suspected.append(CROWD - len(left))
        lose_again(left, uuid4())
    assert suspected == [4, 12, 12]
