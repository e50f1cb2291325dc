"""What the heartbeat does when a row is locked, when something unforeseen is raised, and when the machine slept."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from django.db import connection
from pytest_django import Settings

from runtime.core.decisions import EffectClass
from runtime.execution.claim import advance
from runtime.execution.heartbeat import Heartbeat, Held
from runtime.models import Run
from runtime.ports import Outcome, ToolRequest, ToolResult
from runtime.store import leases, pool
from tests.e2e.office import until
from tests.fakes.ports import FakeTool, ask, say, turns
from tests.runtime.conftest import MakeBench, Rig


class Holding:
    """A worker with runs whose tool holds until the test is over."""

    def __init__(self, rig: MakeBench) -> None:
        self.over = threading.Event()
        tool = FakeTool(effect=EffectClass.WRITE, body=self._hold)
        self.desk: Rig = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
        self._threads: list[threading.Thread] = []

    def begin(self) -> UUID:
        """A run whose tool has begun."""
        run, before = self.desk.start("a"), len(self.desk.effects.calls)
        self._threads.append(threading.Thread(target=self._advance, args=[run]))
        self._threads[-1].start()
        until(lambda: len(self.desk.effects.calls) > before or None, "the tool to begin")
        return run

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()

    def _hold(self, request: ToolRequest) -> Outcome:
        self.over.wait(60)
        return ToolResult(value="done")

    def _advance(self, run: UUID) -> None:
        advance(run, self.desk.bench)
        connection.close()


@pytest.fixture
def holding(rig: MakeBench, settings: Settings) -> Iterator[Holding]:
    settings.ABEYANCE_LEASE_SECONDS = 4.0
    one = Holding(rig)
    yield one
    one.end()


def renewals(run: UUID) -> Callable[[], bool | None]:
    """Whether its lease was renewed twice since now: the first one may have been under way."""
    seen = {Run.objects.get(id=run).lease_until}

    def renewed() -> bool | None:
        seen.add(Run.objects.get(id=run).lease_until)
        return len(seen) > 2 or None

    return renewed


def test_a_locked_row_keeps_no_other_lease_from_being_renewed(holding: Holding) -> None:
    locked, other = holding.begin(), holding.begin()
    due = Run.objects.get(id=other).due_at
    with pool.own() as own, own.transaction():
        own.execute("SELECT FROM runtime_run WHERE id = %s FOR NO KEY UPDATE", (locked,))
        before = Run.objects.get(id=locked).lease_until
        until(renewals(other), "the other lease to be renewed", within=60)
        assert Run.objects.get(id=locked).lease_until == before
        assert not holding.desk.held(locked).lost.is_set()
    until(renewals(locked), "the lease of the row that was locked", within=60)
    assert Run.objects.get(id=other).due_at == due, "to move it would write every index of the row"
    holding.end()
    for run in (locked, other):
        assert Run.objects.get(id=run).status == "completed"


def test_a_locked_row_spends_the_budget_of_its_own_lease(holding: Holding) -> None:
    """No effect starts under a lease that may have run out, though the run is not lost."""
    run = holding.begin()
    held = holding.desk.held(run)
    with pool.own() as own, own.transaction():
        own.execute("SELECT FROM runtime_run WHERE id = %s FOR NO KEY UPDATE", (run,))
        until(lambda: not held.has_budget() or None, "the budget to be spent", within=60)
        assert not held.lost.is_set()
    until(lambda: held.has_budget() or None, "the lease to be renewed", within=60)


def test_a_heartbeat_outlives_an_error_that_is_not_postgres(
    holding: Holding, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = holding.begin()
    really = Heartbeat._renew
    raised = threading.Event()

    def once(self: Heartbeat, *args: object) -> object:
        if not raised.is_set():
            raised.set()
            raise RuntimeError("nobody foresaw it")
        return really(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Heartbeat, "_renew", once)
    assert raised.wait(60)
    until(renewals(run), "a beat after that", within=60)
    assert "heartbeat missed: nobody foresaw it" in caplog.text


def test_a_machine_that_slept_past_a_lease_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a machine sleeps CLOCK_MONOTONIC stands still; CLOCK_BOOTTIME does not."""
    claim = leases.Claim(
        run=uuid4(),
        epoch=1,
        owner=uuid4(),
        position=1,
        head="",
        base=0,
        previous="queued",
        at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    held = Held(claim=claim, wake=lambda: None)
    assert held.has_budget()
    awake = time.clock_gettime
    asleep = {time.CLOCK_BOOTTIME: 3600.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + asleep.get(clock, 0.0))
    assert not held.has_budget()


def test_after_postgres_was_out_of_reach_a_worker_robs_nobody(
    holding: Holding, settings: Settings
) -> None:
    """As after the promotion of a standby: that server has been there for long, its leases are old."""
    run = holding.begin()
    heartbeat = holding.desk.heartbeat
    heartbeat.stop()
    Run.objects.filter(id=run).update(lease_until="2020-01-01T00:00Z", due_at="2020-01-01T00:00Z")
    other = Rig(holding.desk.effects.agents, holding.desk.effects.tools)
    try:
        other.heartbeat.calm.begin()
        assert advance(run, other.bench) is False
    finally:
        other.close()
    with pool.pooled() as pooled:
        assert leases.claim(pooled, run, robs=False) is None
        settings.ABEYANCE_LEASE_SECONDS = 1.0  # less than Postgres has been up
        assert leases.claim(pooled, run, robs=True) is not None


def test_a_heartbeat_that_lost_postgres_is_not_calm(holding: Holding) -> None:
    heartbeat = holding.desk.heartbeat
    run = holding.begin()
    until(renewals(run), "beats", within=60)
    assert heartbeat.calm.over
    with pool.own() as own:
        own.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE '%%runtime_worker%%' AND pid <> pg_backend_pid()"
        )
    until(lambda: not heartbeat.calm.over or None, "a beat that fails", within=60)
    until(renewals(run), "beats after that", within=60)
