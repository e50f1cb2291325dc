"""Between the claim and the first step: signals, deaths, and a COMMIT whose answer is cut off."""

from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import transaction
from pytest_django import Settings

from runtime.control.messages import send_message
from runtime.control.pause import pause as pause_run
from runtime.core.enums import Verdict
from runtime.errors import RunEnded
from runtime.execution import claim as advancing
from runtime.execution.claim import advance
from runtime.models import Loss, Run
from runtime.store import steps
from runtime.store.pool import Connection
from tests.support.engine import ADA, Death, MakeBench, Rig, at_failpoint, die, lose, types
from tests.support.fake_ports import FakeTool, ask, say, turns

LOADED = advancing._load
COMMITTED = steps.commit


def row(run: UUID) -> Run:
    """Read the run's row on a connection of its own."""
    with transaction.atomic():
        return Run.objects.get(id=run)


def suspended(rig: MakeBench) -> tuple[Rig, UUID]:
    """A run that waits for Bea, with her approval on its way."""
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.start("a")
    assert desk.advance(run).status == "suspended"
    (gate,) = desk.open_gates(run)
    desk.decide(gate.id, Verdict.APPROVE)
    return desk, run


def test_the_first_step_consumes_a_signal_after_the_claim(rig: MakeBench) -> None:
    desk, run = suspended(rig)

    def pause() -> None:
        pause_run(run=run, actor=ADA, reason="")

    with at_failpoint("before:ToolStarted", pause):
        assert desk.advance(run).status == "paused"
    assert row(run).epoch == 2
    assert desk.effects.calls == []


def test_a_first_step_with_a_lost_answer_is_found_and_continued(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, run = suspended(rig)
    cut: list[bool] = []

    def commit(connection: Connection, step: steps.Step, *lent: Any, prepare: bool) -> steps.Result:
        result = COMMITTED(connection, step, *lent, prepare=prepare)
        if not cut:
            cut.append(True)
            raise psycopg.OperationalError("cut off")
        return result

    monkeypatch.setattr(steps, "commit", commit)
    assert desk.advance(run).status == "completed"
    assert len(desk.effects.calls) == 1
    assert types(run).count("GateDecided") == 1


def test_a_crash_before_the_first_step_is_recorded(rig: MakeBench) -> None:
    desk = rig({"a": turns(say("done"))})
    run = desk.start("a")
    with at_failpoint("before:FrameOpened", die), pytest.raises(Death):
        advance(run, desk.context)
    assert desk.advance(run).status == "running", "its process is alive, as far as Postgres knows"
    lose(run)
    assert desk.advance(run).status == "completed"
    assert Loss.objects.filter(run=run, worker=desk.heartbeat.worker, position=1).count() == 1


def test_a_run_that_kills_workers_on_loading_is_quarantined(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.ABEYANCE_POISON_LOSSES = 2
    desk = rig({"a": turns(say("done"))})
    run = desk.start("a")
    monkeypatch.setattr(advancing, "_load", die)
    deaths = 0
    while row(run).status != "quarantined":
        try:
            advance(run, desk.context, isolated=row(run).isolated)
        except Death:
            deaths += 1
            assert deaths < 10
        if row(run).owner is not None:
            lose(run)
        with suppress(RunEnded), transaction.atomic():
            send_message(run=run, actor=ADA, text="How is it going?")
    # Two at one position, and two alone.
    assert deaths == 4
    assert Loss.objects.filter(run=run).count() == 4
