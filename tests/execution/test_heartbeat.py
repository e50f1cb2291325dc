"""The heartbeat when a row is locked, when an unexpected error is raised, and when a claim fails."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pytest_django import Settings

from runtime.execution import clock
from runtime.execution.heartbeat import ClaimedRun, Heartbeat, Lease
from runtime.models import LostLease, Run, Worker
from runtime.ports.effects import ToolResult
from runtime.store import leases, loading, pool
from tests.support.engine import MakeBench, Rig
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import Hold, holding


@pytest.fixture
def hold() -> Iterator[Hold]:
    """The body of a tool that waits until the test is over."""
    one = Hold(ToolResult(value="done"))
    yield one
    one.go_on.set()


@pytest.fixture
def desk(rig: MakeBench, hold: Hold, settings: Settings) -> Rig:
    settings.ABEYANCE_LEASE_SECONDS = 4.0
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(body=hold))


def renewals(desk: Rig) -> Callable[[], bool | None]:
    """Tell whether the lease was renewed twice since now: the first time may have been under way."""
    seen = set[object]()

    def renewed() -> bool | None:
        seen.add(Worker.objects.get(id=desk.heartbeat.worker).lease_until)
        return len(seen) > 2 or None

    return renewed


def test_one_row_renews_all_leases_despite_a_locked_run(desk: Rig, hold: Hold) -> None:
    assert desk.heartbeat.lease.is_valid(), "before the first run is claimed"
    locked, other = desk.start("a"), desk.start("a")
    with holding(desk, locked, hold), holding(desk, other, hold):
        until(lambda: len(desk.effects.calls) == 2 or None, "both tools to begin")
        before = list(Run.objects.order_by("id").values())
        with pool.own() as own, own.transaction():
            own.execute("SELECT FROM runtime_run WHERE id = %s FOR UPDATE", (locked,))
            until(renewals(desk), "the lease to be renewed", within=60)
            assert not desk.held(locked).lost.is_set()
        assert list(Run.objects.order_by("id").values()) == before, "a heartbeat writes no run"
    assert {row.status for row in Run.objects.all()} == {"completed"}


def test_no_effect_may_start_while_the_lease_is_not_renewed(desk: Rig, hold: Hold) -> None:
    """The lease may have expired, though the run is not lost. The renewal wakes the runner that asked."""
    run, woken = desk.start("a"), threading.Event()
    with holding(desk, run, hold):
        held = desk.held(run)
        until(renewals(desk), "the mailbox to be known", within=60)
        with pool.own() as own, own.transaction():
            own.execute("SELECT FROM runtime_worker FOR UPDATE")
            until(lambda: not held.has_budget() or None, "the budget to be spent", within=60)
            assert not held.lost.is_set()
            wake, held.wake = held.wake, woken.set
        assert woken.wait(60)
        assert held.has_budget()
        held.wake = wake


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
    desk: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left, really = [RuntimeError("an unforeseen error")], Heartbeat._renew

    def once(self: Heartbeat, *args: Any) -> object:
        if left:
            raise left.pop()
        return really(self, *args)

    monkeypatch.setattr(Heartbeat, "_renew", once)
    until(lambda: not left or None, "the error", within=60)
    until(renewals(desk), "a beat after that", within=60)
    assert "Heartbeat missed: an unforeseen error" in caplog.text


def test_a_machine_that_slept_past_a_lease_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a machine sleeps CLOCK_MONOTONIC stands still; CLOCK_BOOTTIME does not."""
    place = {"run": uuid4(), "owner": uuid4(), "epoch": 1, "position": 1, "head": ""}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    claim = leases.Claim(previous="queued", at=at, continuation_position=0, **place)  # type: ignore[arg-type]
    held = ClaimedRun(claim=claim, lease=Lease(), wake=lambda: None)
    held.lease.renewed(clock.elapsed())
    assert held.has_budget()
    awake = time.clock_gettime
    asleep = {time.CLOCK_BOOTTIME: 3600.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + asleep.get(clock, 0.0))
    assert not held.has_budget()
