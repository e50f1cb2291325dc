"""The sweeper as a process runs it: at work from its first moment, whatever else goes on or goes wrong."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from runtime import database, dispatch, leases, retention, stops, sweeper
from runtime.database import Connection
from runtime.models import Run
from tests.e2e.office import until
from tests.fakes.ports import say, turns
from tests.runtime.conftest import MakeBench

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def sweeping(stop: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=sweeper.run, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Of each look at what is due: the connection's process in Postgres, and whether it robs."""
    looked: list[tuple[int, bool]] = []
    really = leases.due

    def due(connection: Connection, *, robs: bool, **places: Any) -> list[leases.Due]:
        looked.append((connection.info.backend_pid, robs))
        return really(connection, robs=robs, **places)

    monkeypatch.setattr(leases, "due", due)
    monkeypatch.setattr(sweeper, "SWEEP_SECONDS", 0.01)
    return looked


def test_upkeep_that_takes_long_keeps_no_run_from_its_hint(
    sweeps: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    began = threading.Event()

    def enforce(connection: Connection, stop: threading.Event) -> None:
        began.set()
        stop.wait()

    monkeypatch.setattr(retention, "enforce", enforce)
    with sweeping(threading.Event()):
        assert began.wait(60)
        known = len(sweeps)
        until(lambda: len(sweeps) > known or None, "a sweep beside the upkeep")


def test_upkeep_that_fails_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sweeper, "AGAIN_SECONDS", 0.01)
    again = threading.Event()
    times: list[int] = []

    def enforce(connection: Connection, stop: threading.Event) -> None:
        times.append(1)
        if len(times) == 1:
            raise ValueError("no such thing")
        again.set()

    monkeypatch.setattr(retention, "enforce", enforce)
    with sweeping(threading.Event()):
        assert again.wait(60)
    assert "upkeep interrupted; again in 0.01 s" in caplog.text


def test_a_sweeper_that_fails_ends_its_upkeep_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the process would live on, and nobody would start it again."""

    def due(connection: Connection, **_: Any) -> list[leases.Due]:
        raise ValueError("no such thing")

    monkeypatch.setattr(leases, "due", due)
    with pytest.raises(ValueError, match="no such thing"):
        sweeper.run(threading.Event())
    assert "upkeep" not in [thread.name for thread in threading.enumerate()]


def test_whoever_has_a_run_is_given_a_lease_after_the_sweeper_reconnects(
    sweeps: list[tuple[int, bool]],
) -> None:
    with sweeping(threading.Event()), database.own() as own:
        until(lambda: sweeps or None, "the first sweep")
        cut, robs = sweeps[0]
        assert robs
        own.execute("SELECT pg_terminate_backend(%s)", [cut])
        until(lambda: sweeps[-1][0] != cut or None, "a sweep after the reconnect")
    assert not next(robs for process, robs in sweeps if process != cut)


@pytest.fixture
def hinted(monkeypatch: pytest.MonkeyPatch, rig: MakeBench) -> list[UUID]:
    """At which runs the sweeper has hinted; nothing but a full batch keeps it from pausing for long."""
    runs: list[UUID] = []
    monkeypatch.setattr(dispatch, "hint", lambda run, queue="": runs.append(run))
    monkeypatch.setattr(dispatch, "has_room", lambda: True)
    monkeypatch.setattr(sweeper, "SWEEP_SECONDS", 600.0)
    return runs


def test_a_sweeper_does_not_pause_while_more_runs_are_due(
    rig: MakeBench, hinted: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SWEEP_LIMIT", 2)
    desk = rig({"a": turns(say("done"))})
    runs = {desk.start("a") for _ in range(5)}
    Run.objects.update(due_at="2020-01-01T00:00Z")
    hinted.clear()
    with sweeping(threading.Event()):
        until(lambda: set(hinted) == runs or None, "every run to be hinted at", within=30)


def test_stopped_runs_keep_no_other_run_from_its_hint(
    rig: MakeBench, hinted: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are, and though all of them were due earlier at the same moment."""
    monkeypatch.setattr(leases, "WINDOW", 2)
    desk = rig({"a": turns(say("done")), "b": turns(say("done"))})
    for _ in range(5):
        desk.start("a")
    Run.objects.update(due_at="2020-01-01T00:00Z")
    other = desk.start("b")
    Run.objects.filter(id=other).update(due_at="2020-01-02T00:00Z")
    with database.own() as own:
        stops.put(own, {"agent": "a", "by": None, "token": None, "reason": "enough"})
    hinted.clear()
    with sweeping(threading.Event()):
        until(lambda: hinted == [other] or None, "the other run to be hinted at", within=30)


def test_without_a_broker_a_sweeper_pauses(transactional_db: None) -> None:
    assert not dispatch.has_room()
