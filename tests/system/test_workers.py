"""Real worker processes: tools that hang or kill, a drain, two releases at once, and one stopped past its lease."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from runtime.execution.effects.pool import TOOL_SLOTS
from tests.support import processes
from tests.support.people import Office, until
from tests.support.processes import Hand
from tests.support.scripted_agents import holding
from tests.support.stack import with_ledger
from tests.system.holders import Holders

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def holders(sandbox: Path) -> Iterator[Holders]:
    """One application for this file. Each test finds it as the one before left it."""
    settings = {"SIGNOFF_DRAIN_SECONDS": "8"}
    stack, book = with_ledger(sandbox, "workers", holding.__name__, **settings)
    with stack:
        yield Holders(stack, book)


# Bad tools: their worker is replaced, and no other run waits for them


def test_a_worker_whose_tools_hang_is_replaced(holders: Holders) -> None:
    hung = holders.begin("hangs", number=TOOL_SLOTS)
    others = [holders.begin("ticks", name=str(number)) for number in range(8)]
    holders.stack.wait_for_line("worker ended (exit code 1)")
    log = (holders.stack.home / "logs" / "worker.log").read_text()
    assert "CRITICAL" in log
    assert "tool slots are held by calls past their deadline (tools: hang)" in log
    for run in others:
        holders.wait(run, "completed")
    found = holders.wait(hung, "suspended")
    assert [gate["kind"] for gate in found["gates"]] == ["in_doubt"] * TOOL_SLOTS


# One worker, which ends


def test_a_stopping_worker_journals_its_call_and_ends(holders: Holders) -> None:
    run = holders.begin("patient_once", name="drained")
    until(lambda: holders.effects("drained") or None, "the tool to begin")
    worker = processes.of(holders.stack, "worker").process
    worker.terminate()
    worker.terminate()
    holders.release("drained")
    worker.wait(60)
    holders.stack.wait_for_line("worker ended (exit code 0)")
    holders.wait(run, "completed")
    keys = [effect.key for effect in holders.effects("drained")]
    assert keys == ["drained/hold_once", "drained/hold_once/end", "drained/note"]
    assert "OutcomeUnknown" not in [event["type"] for event in holders.events(run)]


# Two releases

RUNS = 6
# Changes by the migrations of a next release: they only add. Run as Django runs a migration.
NEXT_RELEASE = """
from django.apps import apps
from django.db import connection, models
grown = 0
for model in [*apps.get_app_config('runtime').get_models(), *apps.get_app_config('approvals').get_models()]:
    with connection.schema_editor() as editor:
        for field in (models.TextField(null=True), models.IntegerField(db_default=7)):
            field.set_attributes_from_name('next_' + field.get_internal_type().lower())
            field.model = model
            editor.add_field(model, field)
        editor.execute(f'CREATE INDEX next_{grown} ON {model._meta.db_table} (next_textfield)')
        grown += 1
print('grown', grown)
"""


def test_old_and_new_workers_share_runs_without_ping_pong(holders: Holders) -> None:
    stack, older = holders.stack, processes.of(holders.stack, "worker")
    before = older.said("Traceback")
    runs = {f"shared{n}": holders.begin("additive", name=f"shared{n}") for n in range(RUNS)}
    for run in runs.values():
        holders.wait(run, "suspended")
    with processes.another(stack, "worker", "new", **{holding.NEWER: "1"}) as newer:
        for run in runs.values():
            _approve(holders, run)
        said = holders.execute(NEXT_RELEASE, DATABASE_URL=stack.superuser_url)
        assert int(said.split("grown")[-1]) > 10
        runs["later"] = holders.begin("additive", name="later")
        _approve(holders, runs["later"])
        for run in runs.values():
            _approve(holders, run)
            holders.wait(run, "completed")
        assert (newer.said("Traceback"), older.said("Traceback")) == (0, before)
    keys = [effect.key for effect in holders.effects(*runs)]
    assert len(keys) == 2 * len(runs)
    for name, run in runs.items():
        assert keys.index(f"{name}/c1.0") < keys.index(f"{name}/c2.0")
        met = [one["fingerprint"] for one in holders.events(run) if "fingerprint" in one]
        assert len(met) == len(set(met)) <= 2  # never back to the old one
    assert max(holders.epochs(*runs.values())) <= 12


def _approve(office: Office, run: str) -> None:
    """Once there is something to decide."""
    path = f"/api/v1/approvals?kind=approval&status=pending&run={run}"
    found = until(lambda: office.stack.ask("bea", "GET", path)[1]["items"] or None, "a gate")
    assert office.decide("bea", found[0], "approve")[0] == 200


# Four workers

WAKE_UPS = 20
LOST_LEASE = "Run {}: lease lost, nothing more is written"


@pytest.fixture(scope="module")
def workers(holders: Holders) -> Iterator[list[Hand]]:
    with ExitStack() as others:
        more = [processes.another(holders.stack, "worker", f"worker{n}") for n in (2, 3, 4)]
        yield [processes.of(holders.stack, "worker"), *map(others.enter_context, more)]


def stop_holder(holders: Holders, workers: list[Hand], key: str) -> Hand:
    (pid,) = until(lambda: holders.who(key) or None, "the tool to begin")
    (holder,) = (hand for hand in workers if hand.pid == pid)
    holder.process.suspend()
    return holder


def test_the_same_wake_up_twenty_times_is_one_execution(
    holders: Holders, workers: list[Hand]
) -> None:
    run = holders.begin("patient_once", name="woken")
    until(lambda: holders.who("woken/hold_once") or None, "the tool to begin")
    counted = holders.execute(f"""
from uuid import UUID
import redis
from django.conf import settings
from runtime import broker
server = redis.Redis.from_url(settings.REDIS_URL)
server.config_resetstat()  # of the tests before
for _ in range({WAKE_UPS}):
    broker.send_all([(UUID({run!r}), broker.RESUMED)])
print(*server.info("commandstats"))
""")
    assert "cmdstat_lpush" in counted
    assert "cmdstat_hset" not in counted  # the broker keeps no account of hints under way

    def said() -> list[int]:
        return [hand.said(f"Run {run}: not claimed") for hand in workers]

    until(lambda: sum(said()) >= WAKE_UPS or None, "every wake-up to lose its claim")
    assert sum(count > 0 for count in said()) > 1  # not all of them at one worker
    holders.release("woken")
    holders.wait(run, "completed")
    assert len(holders.who("woken/hold_once")) == len(holders.who("woken/note")) == 1
    starts = [one for one in holders.events(run) if one["type"] == "ToolStarted"]
    assert [(one["call"], one["attempt"]) for one in starts] == [("c1.0", 1), ("c2.0", 1)]
    assert holders.epochs(run) == [1]


def test_a_worker_paused_past_its_lease_does_nothing_more(
    holders: Holders, workers: list[Hand]
) -> None:
    run = holders.begin("patient_again", name="stopped")
    stopped = stop_holder(holders, workers, "stopped/hold_again")
    until(lambda: len(holders.who("stopped/hold_again")) > 1 or None, "a takeover")
    holders.release("stopped")
    holders.wait(run, "completed")
    journal, (epoch,) = holders.events(run), holders.epochs(run)
    stopped.process.resume()
    stopped.wait_for(LOST_LEASE.format(run))
    pid, key = stopped.pid, "stopped/hold_again/end"
    until(lambda: pid in holders.who(key) or None, "its tool to end")

    assert holders.events(run) == journal
    assert holders.epochs(run) == [epoch]
    assert epoch == 2
    assert holders.who("stopped/hold_again").count(pid) == 1
    (noted,) = holders.who("stopped/note")
    assert noted != pid


def test_a_stopped_worker_records_its_outcome_late(holders: Holders, workers: list[Hand]) -> None:
    """People are asked meanwhile, the call is not repeated, and the run continues once the outcome is recorded."""
    run = holders.begin("patient_once", name="doubted")
    stopped = stop_holder(holders, workers, "doubted/hold_once")
    found = holders.wait(run, "suspended")
    assert [gate["kind"] for gate in found["gates"]] == ["in_doubt"]
    assert holders.who("doubted/note") == []
    holders.release("doubted")
    stopped.process.resume()
    stopped.wait_for(LOST_LEASE.format(run))
    holders.wait(run, "completed")

    assert holders.who("doubted/hold_once") == [stopped.pid]
    assert len(holders.who("doubted/note")) == 1
    types = [event["type"] for event in holders.events(run)]
    assert (types.count("OutcomeArrived"), types.count("GateDecided")) == (1, 0)
