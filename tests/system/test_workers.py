"""Several real worker processes on one stack: repeated wake-ups, and one that is stopped past its lease."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.people import Office, until
from tests.support.scripted_agents import holding, ledger
from tests.support.stack import with_ledger

pytestmark = pytest.mark.e2e

WAKE_UPS = 20
LOST_LEASE = "Run {}: lease lost, nothing more is written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Four workers, and the ledger of their writes outside the application."""

    office: Office
    workers: list[processes.Hand]
    book: Path

    def who(self, key: str) -> list[int]:
        """The ids of the processes that did this, in order."""
        return [effect.process for effect in ledger.read(self.book) if effect.key == key]

    def release(self, name: str) -> None:
        ledger.mark(self.book, f"{name}.go")

    def said(self, text: str) -> list[int]:
        return [hand.said(text) for hand in self.workers]

    def epoch(self, run: str) -> int:
        ((epoch,),) = self.office.stack.rows("SELECT epoch FROM runtime_run WHERE id = %s", run)
        return int(epoch)

    def stop_holder(self, key: str) -> processes.Hand:
        (pid,) = until(lambda: self.who(key) or None, "the tool to begin")
        (holder,) = (hand for hand in self.workers if hand.pid == pid)
        holder.process.suspend()
        return holder


@pytest.fixture(scope="module")
def workers(sandbox: Path) -> Iterator[Workers]:
    stack, book = with_ledger(sandbox, "workers", holding.__name__)
    with stack, ExitStack() as others:
        workers = [processes.of(stack, "worker")]
        workers += [
            others.enter_context(processes.another(stack, "worker", f"worker{n}"))
            for n in (2, 3, 4)
        ]
        yield Workers(office=Office(stack), workers=workers, book=book)


def test_the_same_wake_up_twenty_times_is_one_execution(workers: Workers) -> None:
    run = workers.office.begin("patient_once", name="woken")
    until(lambda: workers.who("woken/hold_once") or None, "the tool to begin")
    counted = workers.office.execute(f"""
from uuid import UUID
import redis
from django.conf import settings
from runtime.broker import dispatch
for _ in range({WAKE_UPS}):
    dispatch.send_all([(UUID({run!r}), dispatch.RESUMED)])
print(*redis.Redis.from_url(settings.REDIS_URL).info("commandstats"))
""")
    assert "cmdstat_lpush" in counted
    assert "cmdstat_hset" not in counted  # the broker keeps no account of hints under way
    lost = f"Run {run}: not claimed"
    until(lambda: sum(workers.said(lost)) >= WAKE_UPS or None, "every wake-up to lose its claim")
    assert sum(count > 0 for count in workers.said(lost)) > 1  # not all of them at one worker
    workers.release("woken")
    workers.office.wait(run, "completed")
    assert len(workers.who("woken/hold_once")) == len(workers.who("woken/note")) == 1
    starts = [one for one in workers.office.events(run) if one["type"] == "ToolStarted"]
    assert [(one["call"], one["attempt"]) for one in starts] == [("c1.0", 1), ("c2.0", 1)]
    assert workers.epoch(run) == 1


def test_a_worker_paused_past_its_lease_does_nothing_more(workers: Workers) -> None:
    run = workers.office.begin("patient_again", name="stopped")
    stopped = workers.stop_holder("stopped/hold_again")
    until(lambda: len(workers.who("stopped/hold_again")) > 1 or None, "a takeover")
    workers.release("stopped")
    workers.office.wait(run, "completed")
    journal, epoch = workers.office.events(run), workers.epoch(run)
    stopped.process.resume()
    stopped.wait_for(LOST_LEASE.format(run))
    pid, key = stopped.pid, "stopped/hold_again/end"
    until(lambda: pid in workers.who(key) or None, "its tool to end")

    assert workers.office.events(run) == journal
    assert workers.epoch(run) == epoch > 2  # it was tried in a process of its own first
    assert workers.who("stopped/hold_again").count(pid) == 1
    (noted,) = workers.who("stopped/note")
    assert noted != pid


def test_a_stopped_worker_records_its_outcome_late(workers: Workers) -> None:
    """People are asked meanwhile, the call is not repeated, and the run continues once the outcome is recorded."""
    run = workers.office.begin("patient_once", name="doubted")
    stopped = workers.stop_holder("doubted/hold_once")
    found = workers.office.wait(run, "suspended")
    assert [gate["kind"] for gate in found["gates"]] == ["in_doubt"]
    assert workers.who("doubted/note") == []
    workers.release("doubted")
    stopped.process.resume()
    stopped.wait_for(LOST_LEASE.format(run))
    workers.office.wait(run, "completed")

    assert workers.who("doubted/hold_once") == [stopped.pid]
    assert len(workers.who("doubted/note")) == 1
    types = [event["type"] for event in workers.office.events(run)]
    assert (types.count("OutcomeArrived"), types.count("GateDecided")) == (1, 0)
