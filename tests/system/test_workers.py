"""Several real worker processes on one stack: repeated wake-ups, and one that is stopped past its lease."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.people import Office, until
from tests.support.scripted_agents import patience
from tests.support.stack import Stack, shared_folder

pytestmark = pytest.mark.e2e

WAKE_UPS = 20
LOST_CLAIM = "Run {}: not claimed"
LOST_LEASE = "Run {}: lease lost, nothing more is written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """Four workers, and the ledger of their writes outside the application."""

    office: Office
    workers: list[processes.Hand]
    folder: Path

    def ledger(self, name: str, tool: str, what: str) -> list[int]:
        """The ids of the processes that did this, in order."""
        ledger = self.folder / "ledger"
        lines = (
            [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
        )
        return [int(pid) for *entry, pid in lines if entry == [name, tool, what]]

    def release(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def of(self, pid: int) -> processes.Hand:
        return next(hand for hand in self.workers if hand.pid == pid)

    def said(self, text: str) -> list[int]:
        """Count each worker's log lines with this text."""
        return [hand.said(text) for hand in self.workers]

    def epoch(self, run: str) -> int:
        code = f"from runtime.models import Run; print('epoch', Run.objects.get(id={run!r}).epoch)"
        return int(self.office.execute(code).split("epoch")[-1])

    def started(self, run: str) -> list[tuple[str, int]]:
        events = self.office.events(run)
        return [(one["call"], one["attempt"]) for one in events if one["type"] == "ToolStarted"]


@pytest.fixture(scope="module")
def shift(sandbox: Path) -> Iterator[Shift]:
    folder = shared_folder(sandbox, "patience")
    stack = Stack(
        sandbox / "workers",
        ABEYANCE_LEASE_SECONDS="2",
        ABEYANCE_AGENTS=f"agents.flows.hr,{patience.__name__}",
        PATIENCE_FOLDER=str(folder),
    )
    with stack, ExitStack() as others:
        workers = [processes.of(stack, "worker")]
        workers += [
            others.enter_context(processes.another(stack, "worker", f"worker{n}"))
            for n in (2, 3, 4)
        ]
        yield Shift(office=Office(stack), workers=workers, folder=folder)


def test_the_same_wake_up_twenty_times_is_one_execution(shift: Shift) -> None:
    run = shift.office.begin("patient_once", name="woken")
    until(lambda: shift.ledger("woken", "hold_once", "begin") or None, "the tool to begin")
    shift.office.execute(f"""
from uuid import UUID
from runtime.broker import dispatch
for _ in range({WAKE_UPS}):
    dispatch.send_all([(UUID({run!r}), dispatch.RESUMED)])
""")
    lost = LOST_CLAIM.format(run)
    until(lambda: sum(shift.said(lost)) >= WAKE_UPS or None, "every wake-up to lose its claim")
    assert sum(count > 0 for count in shift.said(lost)) > 1  # not all of them at one worker
    counted = shift.office.execute("""
import redis
from django.conf import settings
print(*redis.Redis.from_url(settings.REDIS_URL).info("commandstats"))
""")
    assert "cmdstat_lpush" in counted
    assert "cmdstat_hset" not in counted  # the broker keeps no account of hints under way
    shift.release("woken")
    shift.office.wait(run, "completed")
    assert len(shift.ledger("woken", "hold_once", "begin")) == 1
    assert len(shift.ledger("woken", "note", "begin")) == 1
    assert shift.started(run) == [("c1.0", 1), ("c2.0", 1)]
    assert shift.epoch(run) == 1


def test_a_decision_with_twenty_wake_ups_is_one_mail(shift: Shift) -> None:
    run = shift.office.start("hr_onboarding_single", "wokenmail")
    shift.office.wait(run, "suspended")
    asked = shift.office.approval(run)
    shift.office.execute(f"""
from uuid import UUID
from approvals.decisions.decide import decide
from runtime.broker import dispatch
from runtime.ports.access import Actor
decide(
    request=UUID({asked["id"]!r}),
    verdict="approve",
    digest={asked["digest"]!r},
    reason="",
    actor=Actor(person="bea"),
)
for _ in range({WAKE_UPS}):
    dispatch.send_all([(UUID({run!r}), dispatch.RESUMED)])
""")
    shift.office.wait(run, "completed")
    assert shift.office.roles("wokenmail") == ["security-level-3"]
    assert shift.office.mails("wokenmail") == 1
    attempts = [attempt for _, attempt in shift.started(run)]
    assert attempts == [1] * len(attempts)


def test_a_worker_paused_past_its_lease_does_nothing_more(shift: Shift) -> None:
    run = shift.office.begin("patient_again", name="stopped")
    first, stopped = _stop_whoever_holds(shift, "stopped", "hold_again")
    until(
        lambda: len(shift.ledger("stopped", "hold_again", "begin")) > 1 or None,
        "another worker to take over",
    )
    shift.release("stopped")
    shift.office.wait(run, "completed")
    journal, epoch = shift.office.events(run), shift.epoch(run)
    stopped.process.resume()
    stopped.wait_for(LOST_LEASE.format(run))
    until(lambda: first in shift.ledger("stopped", "hold_again", "end") or None, "its tool to end")

    assert shift.office.events(run) == journal
    assert shift.epoch(run) == epoch > 2  # it was tried in a process of its own first
    assert shift.ledger("stopped", "hold_again", "begin").count(first) == 1
    (noted,) = shift.ledger("stopped", "note", "begin")
    assert noted != first


def test_a_stopped_worker_records_its_outcome_late(shift: Shift) -> None:
    """People are asked meanwhile, the call is not repeated, and the run continues once the outcome is recorded."""
    run = shift.office.begin("patient_once", name="doubted")
    first, stopped = _stop_whoever_holds(shift, "doubted", "hold_once")
    found = shift.office.wait(run, "suspended")
    assert [gate["kind"] for gate in found["gates"]] == ["in_doubt"]
    assert shift.ledger("doubted", "note", "begin") == []
    shift.release("doubted")
    stopped.process.resume()
    stopped.wait_for(LOST_LEASE.format(run))
    shift.office.wait(run, "completed")

    assert shift.ledger("doubted", "hold_once", "begin") == [first]
    assert len(shift.ledger("doubted", "note", "begin")) == 1
    types = [event["type"] for event in shift.office.events(run)]
    assert (types.count("OutcomeArrived"), types.count("GateDecided")) == (1, 0)


def _stop_whoever_holds(shift: Shift, name: str, tool: str) -> tuple[int, processes.Hand]:
    (pid,) = until(lambda: shift.ledger(name, tool, "begin") or None, "the tool to begin")
    holder = shift.of(pid)
    holder.process.suspend()
    return pid, holder
