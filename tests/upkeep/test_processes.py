"""Processes: their health check, what keeps one from starting, and when a sweeper takes runs over."""

import signal
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from runtime.keyring import files, purposes
from runtime.management.commands import healthcheck
from runtime.models import Run, WorkerProcess
from runtime.reads import workers
from runtime.upkeep import startup
from runtime.upkeep.due_runs import TakeoverDelay
from tests.support.deadlines import deadline
from tests.support.engine import MakeBench, Rig
from tests.support.fake_ports import say, turns
from tests.support.people import until
from tests.upkeep.test_sweeper import sweeping

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_of_another_machine_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    WorkerProcess.objects.create(id=uuid4(), host="elsewhere", process=1)
    with pytest.raises(CommandError, match="no worker of this host beats"):
        call_command("healthcheck", "worker")
    WorkerProcess.objects.create(id=uuid4(), host=socket.gethostname(), process=1)
    call_command("healthcheck", "worker")
    assert capsys.readouterr().out == "worker is alive\n"


def test_a_sweeper_is_alive_while_it_sweeps() -> None:
    with pytest.raises(CommandError, match="no sweeper of this host sweeps"):
        call_command("healthcheck", "sweeper")
    with sweeping(threading.Event()):
        until(lambda: workers.has_live_sweeper(healthcheck._WITHIN) or None, "the sweeper to sweep")
        call_command("healthcheck", "sweeper")


def test_the_web_is_alive_when_it_is_ready(live_server: LiveServer) -> None:
    place = live_server.url.removeprefix("http://")
    with pytest.raises(CommandError, match=r'web is not ready: .*"worker": false'):
        call_command("healthcheck", "web", at=place)
    WorkerProcess.objects.create(id=uuid4(), host="elsewhere", process=1)
    call_command("healthcheck", "web", at=place)
    with pytest.raises(CommandError, match=r"web does not answer at 127\.0\.0\.1:1"):
        call_command("healthcheck", "web", at="127.0.0.1:1")


# A worker does not start beside a live run that was signed with a key it lacks


@pytest.mark.parametrize("suspended", [True, False])
def test_a_key_that_a_live_run_needs_is_named(
    gated: Rig, suspended: bool, continued: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gated.start("a")
    if suspended:
        assert gated.advance(run).status == "suspended"
    startup.require_keys_of_live_runs()
    purpose = purposes.CONTINUATION if suspended else purposes.JOURNAL
    used = files.list_key_ids(purpose)[0]
    monkeypatch.setattr(files, "list_key_ids", lambda purpose: ("another",))
    needed = f"key '{used}' for {purpose} is not in the ring, and run {run}"
    with pytest.raises(SystemExit, match=needed):
        startup.require_keys_of_live_runs()
    # A continuation goes with the last step of its run; here one is left.
    Run.objects.filter(id=run).update(status="cancelled", ended_at=timezone.now(), due_at=None)
    startup.require_keys_of_live_runs()


def test_a_worker_starts_despite_too_many_live_runs(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk = rig({"a": turns(say("done"))})
    desk.start("a")
    monkeypatch.setattr(startup, "CHECK_SECONDS", "1ms")
    slow = "SELECT key_id, run_id AS run FROM runtime_journalentry, pg_sleep(60)"
    monkeypatch.setattr(startup, "_LIVE", {purposes.JOURNAL: slow})
    startup.require_keys_of_live_runs()
    assert "Keys of journal: not checked for all live runs" in caplog.text


# A sweeper takes over no run for one lease after it connects or sees a clock jump


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> list[float]:
    """Append how many seconds have passed on our own clock; a lease has 10 s."""
    settings.SIGNOFF_LEASE_SECONDS = 10.0
    seconds: list[float] = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + sum(seconds))
    return seconds


def test_one_lease_passes_after_a_lost_connection(passed: list[float]) -> None:
    assert TakeoverDelay().over
    delay = TakeoverDelay()
    delay.observe(NOON)
    delay.begin()
    passed.append(9.9)
    assert not delay.over
    passed.append(0.1)
    delay.observe(NOON + timedelta(hours=1))  # an outage is no jump of the clock
    assert delay.over


@pytest.mark.parametrize(("jump", "over"), [(3600.0, False), (4.9, True), (-3600.0, True)])
def test_one_lease_passes_after_a_clock_jump(passed: list[float], jump: float, over: bool) -> None:
    delay = TakeoverDelay()
    delay.observe(NOON)
    passed.append(1.0)
    delay.observe(NOON + timedelta(seconds=1.0 + jump))
    assert delay.over is over
    passed.append(10.0)
    delay.observe(NOON + timedelta(seconds=11.0 + jump))
    assert delay.over


def test_a_test_that_waits_for_ever_fails_and_shows_its_threads(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    with pytest.raises(TimeoutError, match="asleep: no end after"), deadline("asleep", 0.05):
        threading.Event().wait()
    assert before > 0, "this test has a deadline too"
