"""The heartbeat when a row is locked, when an unexpected error is raised, and when a claim fails."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from pytest_django import Settings

from runtime.core.enums import EffectClass
from runtime.execution import clock
from runtime.execution.claim import advance
from runtime.execution.heartbeat import ClaimedRun, Heartbeat, Lease
from runtime.models import LostLease, Run, Worker
from runtime.ports.effects import ToolResult
from runtime.store import leases, loading, pool
from tests.support.engine import MakeBench, Rig
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import Hold, in_thread


class Holding:
    """A worker with runs whose tool holds until the test is over."""

    def __init__(self, rig: MakeBench) -> None:
        self._hold = Hold(ToolResult(value="done"))
        tool = FakeTool(effect=EffectClass.WRITE, body=self._hold)
        self.desk: Rig = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
        self._threads: list[threading.Thread] = []

    def begin(self) -> UUID:
        """Start a run, and wait until its tool runs."""
        run, before = self.desk.start("a"), len(self.desk.effects.calls)
        self._threads.append(in_thread(lambda: advance(run, self.desk.context)))
        until(lambda: len(self.desk.effects.calls) > before or None, "the tool to begin")
        return run

    def end(self) -> None:
        self._hold.go_on.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def holding(rig: MakeBench, settings: Settings) -> Iterator[Holding]:
    settings.ABEYANCE_LEASE_SECONDS = 4.0
    one = Holding(rig)
    yield one
    one.end()


def lease(holding: Holding) -> datetime:
    """Return the end of the worker's lease."""
    found = Worker.objects.get(id=holding.desk.heartbeat.worker).lease_until
    assert found is not None
    return found


def renewals(holding: Holding) -> Callable[[], bool | None]:
    """Tell whether the lease was renewed twice since now: the first time may have been under way."""
    seen = {lease(holding)}

    def renewed() -> bool | None:
        seen.add(lease(holding))
        return len(seen) > 2 or None

    return renewed


def test_one_row_renews_all_leases_despite_a_locked_run(holding: Holding) -> None:
    locked, other = holding.begin(), holding.begin()
    before = {run: Run.objects.values().get(id=run) for run in (locked, other)}
    with pool.own() as own, own.transaction():
        own.execute("SELECT FROM runtime_run WHERE id = %s FOR UPDATE", (locked,))
        until(renewals(holding), "the lease to be renewed", within=60)
        assert not holding.desk.held(locked).lost.is_set()
    for run, row in before.items():
        assert Run.objects.values().get(id=run) == row, "a heartbeat writes no run"
    holding.end()
    for run in (locked, other):
        assert Run.objects.get(id=run).status == "completed"


def test_no_effect_may_start_while_the_lease_is_not_renewed(holding: Holding) -> None:
    """The lease may have expired, though the run is not lost. The renewal wakes the runner that asked."""
    run, woken = holding.begin(), threading.Event()
    held = holding.desk.held(run)
    until(renewals(holding), "the mailbox to be known", within=60)
    with pool.own() as own, own.transaction():
        own.execute("SELECT FROM runtime_worker FOR UPDATE")
        until(lambda: not held.has_budget() or None, "the budget to be spent", within=60)
        assert not held.lost.is_set()
        held.wake = woken.set
    assert woken.wait(60)
    assert held.has_budget()


def test_a_lease_lasts_before_the_first_run_is_claimed(rig: MakeBench) -> None:
    desk = rig({"a": turns(say("done"))})
    assert desk.heartbeat.lease.is_valid()
    assert Worker.objects.get(id=desk.heartbeat.worker).lease_until is not None


@pytest.mark.parametrize("cut", ["the answer to the claim", "what follows"])
def test_a_run_that_a_live_process_does_not_work_on_is_released(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """The lease of the process stays valid, so no sweeper would ever take the run over."""
    desk = rig({"a": turns(say("done"))})
    run, really = desk.start("a"), loading.claim

    def claim(*given: Any, **how: Any) -> Any:
        found = really(*given, **how)
        assert found is not None
        if cut == "the answer to the claim":
            raise psycopg.OperationalError("cut off")
        return found

    def unreachable(*_: object) -> None:
        raise psycopg.OperationalError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(loading, "claim", claim)
        patch.setattr("runtime.execution.claim._load", unreachable)
        with suppress(psycopg.OperationalError):
            desk.advance(run)
    until(lambda: Run.objects.get(id=run).owner is None or None, "the run to be released")
    assert desk.advance(run).status == "completed"
    assert LostLease.objects.count() == 0


def test_a_heartbeat_outlives_an_error_that_is_not_postgres(
    holding: Holding, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    holding.begin()
    really = Heartbeat._renew
    raised = threading.Event()

    def once(self: Heartbeat, *args: object) -> object:
        if not raised.is_set():
            raised.set()
            raise RuntimeError("an unforeseen error")
        return really(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Heartbeat, "_renew", once)
    assert raised.wait(60)
    until(renewals(holding), "a beat after that", within=60)
    assert "Heartbeat missed: an unforeseen error" in caplog.text


def test_a_machine_that_slept_past_a_lease_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a machine sleeps CLOCK_MONOTONIC stands still; CLOCK_BOOTTIME does not."""
    place = {
        "run": uuid4(),
        "epoch": 1,
        "owner": uuid4(),
        "position": 1,
        "head": "",
        "continuation_position": 0,
    }
    at = datetime(2026, 1, 1, tzinfo=UTC)
    claim = leases.Claim(previous="queued", at=at, **place)  # type: ignore[arg-type]
    held = ClaimedRun(claim=claim, lease=Lease(), wake=lambda: None)
    held.lease.renewed(clock.elapsed())
    assert held.has_budget()
    awake = time.clock_gettime
    asleep = {time.CLOCK_BOOTTIME: 3600.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + asleep.get(clock, 0.0))
    assert not held.has_budget()
