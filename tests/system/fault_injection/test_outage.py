"""Postgres is restarted at once, again and again, and is gone for a while: no decision is lost, nothing in doubt.

FAULTS_R6 says how many times it dies while people decide, FAULTS_R6_SECONDS how long it is gone and FAULTS_R6_WRITES
how many writes are under way meanwhile.
"""

import signal
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest

from config.local.http_client import Unreachable
from tests.support import ledger
from tests.support.people import until
from tests.support.scripted_agents.scores import errands, labours
from tests.system.fault_injection.harness import figures
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.crew import Crew, stack_of

pytestmark = [pytest.mark.faults, pytest.mark.e2e]

RESTARTS = count("R6", short=2, long=200)
SECONDS = count("R6_SECONDS", short=4, long=60)
WRITES = count("R6_WRITES", short=24, long=50)


def test_restarts_of_postgres_lose_no_acknowledged_decision(sandbox: Path) -> None:
    stack, book = stack_of(sandbox, "restarts")
    with stack:
        crew = Crew(stack, book)
        over = Event()

        def review() -> None:
            while not over.wait(0.02):
                with suppress(Unreachable):
                    crew.review()

        reviewing = Thread(target=review)
        reviewing.start()
        try:
            for number in range(RESTARTS):
                for twin in range(3):
                    crew.start(errands(), f"restart-{number}-{twin}")
                enough = len(crew.decided) + 2
                until(lambda: len(crew.decided) >= enough or None, "two more decisions")  # noqa: B023
                stack.named("postgres")[0].send_signal(signal.SIGQUIT)  # an immediate shutdown
        finally:
            over.set()
            reviewing.join()
        crew.work_until(0, within=120 + RESTARTS)
        wrong, _ = crew.judge("immediate restarts of Postgres", kills=RESTARTS)
        paths = [f"/api/v1/approvals/{one}" for one in crew.decided]
        found = [stack.ask("bea", "GET", path)[1]["status"] for path in paths]
    lost = sum(status != "approved" for status in found)
    figures.say(f"{len(found)} decisions were acknowledged, {lost} of them lost")
    assert (wrong, lost) == ([], 0)
    assert len(crew.decided) >= RESTARTS


def test_an_outage_of_postgres_puts_no_finished_write_in_doubt(sandbox: Path) -> None:
    stack, book = stack_of(sandbox, "outage", ABEYANCE_WORKERS="2")
    with stack:
        crew = Crew(stack, book)
        for number in range(WRITES):
            crew.start(labours(), f"labour-{number}")
        until(lambda: len(ledger.read(book)) == WRITES or None, "every write to be under way", 120)
        launcher = psutil.Process(stack.pid)
        launcher.suspend()  # or it would start Postgres again
        stack.named("postgres")[0].send_signal(signal.SIGQUIT)
        gone_at = time.monotonic()
        Path(f"{book}.enough").touch()  # they end while no worker can record it
        Event().wait(SECONDS)
        launcher.resume()
        gone = time.monotonic() - gone_at
        crew.work_until(0, within=180)
        wrong, in_doubt = crew.judge("an outage of Postgres", kills=1)
    figures.say(f"Postgres was gone for {gone:.0f} s with {WRITES} writes under way")
    assert (wrong, in_doubt) == ([], 0)
