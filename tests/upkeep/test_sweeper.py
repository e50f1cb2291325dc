"""The sweeper in its process: it dispatches from its start on, despite other work and errors."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, get_args
from uuid import UUID

import psycopg
import pytest
from django.db import OperationalError, ProgrammingError
from django.db.models.functions import Now
from django.test import Client
from pytest_django import Settings

from runtime import broker
from runtime.management.commands.sweep import LOOPS
from runtime.models import Run, SweeperLoop
from runtime.reads import workers
from runtime.reads.workers import LATE_SECONDS
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import kill_switches, trigger_sources
from runtime.store.workers import name_sweeper
from runtime.triggers.sources import SOURCES
from runtime.upkeep import due_runs, journals, sweeper
from runtime.upkeep.alarm import Alarm
from tests.support.calls import around
from tests.support.engine import MakeBench, Rig
from tests.support.fake_ports import say, turns
from tests.support.people import until
from tests.support.threads import WITHIN

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def sweeping(stop: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=sweeper.run, args=[stop, *LOOPS])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WITHIN)
    assert not thread.is_alive(), f"the sweeper did not end {WITHIN:g} s after it was told to"


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is never full."""
    monkeypatch.setattr(broker, "list_queues_with_room", lambda: frozenset(broker.QUEUES))


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch, room: None) -> list[tuple[int, bool]]:
    """For each query of due runs: the connection's Postgres process, and whether it may take runs over."""
    looked: list[tuple[int, bool]] = []

    def note(connection: Connection, *_: object, may_take_over: bool, **__: object) -> None:
        looked.append((connection.info.backend_pid, may_take_over))

    around(monkeypatch, due_runs, "dispatch_window", before=note)
    monkeypatch.setattr(due_runs, "SWEEP_SECONDS", 0.01)
    return looked


# Each loop by itself


def test_a_failing_loop_stops_no_other_and_raises_its_alarm(
    room: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def fail(*_: object) -> None:
        tried.append(1)
        raise ValueError("no such thing")

    monkeypatch.setattr(journals, "maintain_partitions", fail)
    monkeypatch.setattr(sweeper, "RETRY_SECONDS", 0.2)
    others = {*LATE_SECONDS, name_sweeper()} - {"partitions"}
    with sweeping(threading.Event()):
        names = SweeperLoop.objects.values_list("name", flat=True)
        until(lambda: set(names.all()) == others or None, "the rest")
        until(lambda: len(tried) > 1 or None, "another try")
    alarms = [record.message for record in caplog.records if record.levelname == "CRITICAL"]
    assert alarms[0] == "partitions failed, last done 0 s ago; again in 0.2 s: no such thing"
    assert Client().get("/readyz").json()["warnings"][-1] == "partitions_late"
    assert workers.list_late_loops() == ("partitions",)


def test_a_sweeper_that_sends_no_hints_ends_its_other_loops_too(
    room: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the process would live on, and no supervisor would start it again."""

    def take(connection: Connection, *_: Any, **__: Any) -> list[Any]:
        raise ValueError("no such thing")

    monkeypatch.setattr(due_runs, "_select", take)
    with pytest.raises(ValueError, match="no such thing"):
        sweeper.run(threading.Event())
    assert set(LATE_SECONDS) & {thread.name for thread in threading.enumerate()} == set()


# Alarms


def test_a_temporary_error_is_critical_once_the_loop_is_late(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alarm = Alarm("partitions")
    locked = psycopg.errors.LockNotAvailable("a step has the lock")
    through_django, gone = OperationalError("terminating"), ProgrammingError("gone")
    through_django.__cause__ = psycopg.errors.AdminShutdown("terminating")
    gone.__cause__ = psycopg.errors.UndefinedTable("gone")
    for exc in (locked, through_django, ConnectionError("no broker"), gone, gone.__cause__):
        alarm.log_failure(exc, again=1)
    monkeypatch.setitem(LATE_SECONDS, "partitions", 0)
    alarm.log_failure(locked, again=1)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING"] * 3 + ["CRITICAL"] * 3


def test_each_kind_of_source_has_a_loop_that_can_be_late() -> None:
    kinds = get_args(trigger_sources.SourceKind)
    assert {source.loop for source in SOURCES.values()} <= set(LATE_SECONDS)
    assert tuple(SOURCES) == kinds


def test_a_loop_is_late_once_no_sweeper_did_its_work_in_time() -> None:
    assert workers.list_late_loops() == tuple(LATE_SECONDS)
    alarms = [Alarm(name) for name in LATE_SECONDS]
    with pool.open_own() as own:
        for alarm in alarms:
            alarm.record_success(own)
        assert workers.list_late_loops() == ()
        SweeperLoop.objects.update(done_at=Now() - timedelta(seconds=61))
        for alarm in alarms:
            alarm.record_success(own)  # which it notes seldom
    assert workers.list_late_loops() == ("due_runs",)


# Due runs


def test_a_first_lease_takes_over_no_run(
    sweeps: list[tuple[int, bool]], settings: Settings
) -> None:
    settings.SIGNOFF_LEASE_SECONDS = 0.5
    with sweeping(threading.Event()), pool.open_own() as own:
        until(lambda: any(may_take_over for _, may_take_over in sweeps) or None, "a sweep that may")
        cut = sweeps[0][0]
        assert sweeps[0] == (cut, False), "the first sweep of the process"
        own.execute("SELECT pg_terminate_backend(%s)", [cut])
        until(lambda: sweeps[-1][0] != cut or None, "a sweep after the reconnect")
    assert not next(may_take_over for process, may_take_over in sweeps if process != cut)


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    return rig({"a": turns(say("done")), "b": turns(say("done"))})


def start_due(desk: Rig, agents: str) -> list[UUID]:
    """Start a run of each of these agents, due a day after the one before."""
    runs = [desk.start(agent) for agent in agents]
    for day, run in reversed([*enumerate(runs, start=1)]):
        Run.objects.filter(id=run).update(due_at=f"2020-01-0{day}T00:00Z")
    return runs


def stop_b() -> None:
    with pool.open_own() as own:
        kill_switches.engage(own, {"agent": "b", "by": None, "token": None, "reason": "enough"})


@pytest.fixture
def hinted(monkeypatch: pytest.MonkeyPatch, desk: Rig, room: None) -> list[UUID]:
    """The runs for which the sweeper sent hints. Only a full batch shortens its long pause."""
    runs: list[UUID] = []
    monkeypatch.setattr(broker, "send_all", lambda hints: runs.extend(run for run, _ in hints))
    monkeypatch.setattr(due_runs, "SWEEP_SECONDS", 600.0)
    return runs


def test_stopped_runs_keep_no_other_run_from_its_hint(
    desk: Rig, hinted: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if they are many, and all were due earlier and at the same moment."""
    monkeypatch.setattr(due_runs, "WINDOW", 2)
    for _ in range(5):
        desk.start("b")
    Run.objects.update(due_at="2020-01-01T00:00Z")
    other = desk.start("a")
    Run.objects.filter(id=other).update(due_at="2020-01-02T00:00Z")
    stop_b()
    with sweeping(threading.Event()):
        until(lambda: hinted == [other] or None, "the other run's hint", within=60)


def test_the_next_look_begins_where_the_last_one_ended(
    desk: Rig, hinted: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the last hint of a full batch, behind the last run considered, or at the beginning again."""
    monkeypatch.setattr(due_runs, "BATCH", 2)
    monkeypatch.setattr(due_runs, "WINDOW", 3)
    runs = start_due(desk, "aaabbbb")
    stop_b()
    ends = [due_runs.BEGINNING]
    with pool.open_own() as own:
        own.execute("SET enable_nestloop = off")  # the table is then read in its own order
        for _ in range(3):
            ends.append(due_runs.dispatch_window(own, after=ends[-1]).end)
    assert hinted == runs[:3]
    assert [run for _, run in ends[1:]] == [runs[1], runs[4], due_runs.END[1]]


def test_a_sweeper_does_not_pause_while_more_runs_are_due(
    desk: Rig, hinted: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that takes long begins again at the run that was due first."""
    monkeypatch.setattr(due_runs, "BATCH", 1)
    monkeypatch.setattr(due_runs, "PASS_SECONDS", 0.0)
    monkeypatch.setattr(due_runs, "PAUSE_SECONDS", 600.0)
    runs = [desk.start("a") for _ in range(3)]
    early = runs.pop()
    Run.objects.exclude(id=early).update(due_at="2020-01-02T00:00Z")

    def make_due(_: object) -> None:
        """Make the other run due, before all others, when the first hint is sent."""
        if not hinted:
            with pool.open_own() as own:
                own.execute("UPDATE runtime_run SET due_at = '2020-01-01' WHERE id = %s", [early])

    around(monkeypatch, broker, "send_all", before=make_due)
    with sweeping(threading.Event()):
        until(lambda: len(hinted) == 3 or None, "a hint for every run", within=60)
    assert hinted[1] == early


def test_a_full_queue_keeps_no_hint_from_another(desk: Rig, hinted: list[UUID]) -> None:
    new, waiting = start_due(desk, "aa")
    Run.objects.filter(id=waiting).update(status="waiting")
    with pool.open_own() as own:
        assert due_runs.dispatch_window(own, {broker.RESUMED}).hints == 1
        assert hinted == [waiting]
        assert due_runs.dispatch_window(own).hints == 1
    assert hinted == [waiting, new]


def test_two_sweepers_share_due_runs_and_send_no_hint_twice(
    desk: Rig, hinted: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first has runs locked, the second takes the others."""
    monkeypatch.setattr(due_runs, "BATCH", 2)
    runs = start_due(desk, "aaaa")
    with pool.open_own() as one, pool.open_own() as other:
        other.execute("SET lock_timeout = '200ms'")
        with one.transaction():
            due_runs.dispatch_window(one)
            due_runs.dispatch_window(other)
        assert due_runs.dispatch_window(other).hints == 0
    assert [set(hinted[:2]), set(hinted[2:])] == [set(runs[:2]), set(runs[2:])]
    assert len(hinted) == len(runs)


def test_a_sweeper_without_a_broker_leaves_due_runs_as_they_are(
    desk: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start_due(desk, "a")
    with sweeping(threading.Event()):
        until(lambda: "due_runs interrupted" in caplog.text or None, "the alarm", within=60)
    assert Run.objects.filter(due_at="2020-01-01T00:00Z").exists()
    assert not SweeperLoop.objects.filter(name="due_runs").exists()
