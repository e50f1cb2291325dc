"""Claims, epochs, heartbeats, the sweeper and the partitions, on real Postgres."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
from django.db import connection
from pytest_django import Settings

from runtime.execution.claim import advance
from runtime.models import Run, Worker
from runtime.ports.effects import ModelRequest, Outcome
from runtime.store import leases, pool
from runtime.upkeep import due_runs, partitions
from tests.support.engine import LONG, MakeBench, Rig, claim
from tests.support.fake_ports import say, turns
from tests.support.threads import Hold, in_thread


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    return rig({"a": turns(say("done"))})


def test_one_of_many_concurrent_claims_succeeds(desk: Rig) -> None:
    run, barrier = desk.start("a"), threading.Barrier(8)

    def try_it(_: int) -> leases.Claim | None:
        with pool.own() as own:
            barrier.wait()
            return claim(own, run)

    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(try_it, range(8)))
    assert len([one for one in claims if one is not None]) == 1


def test_a_replaced_owner_can_neither_release_nor_quarantine(desk: Rig) -> None:
    run = desk.start("a")
    with pool.pooled() as pooled:
        made = claim(pooled, run)
        assert made is not None
        Run.objects.filter(id=run).update(epoch=made.epoch + 1, owner=uuid4())
        assert not leases.release(pooled, made, status="suspended", signal_version=0, due=None)
        assert not leases.back_off(pooled, made)
        assert not leases.quarantine(pooled, made, "because")
    assert Run.objects.get(id=run).status == "running"


def test_a_replaced_worker_writes_nothing(rig: MakeBench) -> None:
    def replaced(request: ModelRequest) -> Outcome:
        with pool.own() as own:
            own.execute("UPDATE runtime_run SET epoch = epoch + 1, owner = %s", (uuid4(),))
        return say("too late")

    desk = rig({"a": replaced})
    run = desk.start("a")
    advance(run, desk.context)
    after = Run.objects.get(id=run)
    assert (after.status, after.position, after.output) == ("running", 2, None)


def test_a_replaced_worker_is_told_during_a_call(rig: MakeBench) -> None:
    """The heartbeat tells it: it has no step to write, and would wait for the end of the call."""
    endless = Hold(say("too late"))
    desk = rig({"a": endless})
    run = desk.start("a")
    worker = in_thread(lambda: advance(run, desk.context))
    assert endless.begun.wait(LONG)
    with pool.own() as own:
        own.execute("UPDATE runtime_run SET epoch = epoch + 1, owner = %s", (uuid4(),))
    worker.join(LONG)
    left = not worker.is_alive()
    endless.go_on.set()
    worker.join()
    assert left


def test_the_heartbeat_renews_leases_and_notes_the_worker(rig: MakeBench) -> None:
    seen: list[object] = []

    def patient(request: ModelRequest) -> Outcome:
        first = desk.heartbeat.lease.surely_until
        while desk.heartbeat.lease.surely_until == first:
            renewed.wait(0.05)
        with pool.own() as own:
            row = own.execute(f"SELECT {leases.LIVE} FROM runtime_run").fetchone()
        seen.append(row)
        return say("done")

    renewed = threading.Event()
    desk = rig({"a": patient})
    assert desk.advance(desk.start("a")).status == "completed"
    assert seen == [(True,)]
    assert Worker.objects.count() == 1


def test_the_sweeper_hints_at_due_runs_once_per_backoff(
    desk: Rig, hints: list[tuple[UUID, str]]
) -> None:
    runs = {desk.start("a") for _ in range(3)}
    hints.clear()
    with pool.own() as own:
        own.execute("UPDATE runtime_run SET due_at = clock_timestamp()")
        assert [due_runs.dispatch_window(own).hints for _ in range(2)] == [3, 0]
    assert {run for run, _ in hints} == runs


def test_the_journal_has_partitions_for_three_months(desk: Rig) -> None:
    run = desk.start("a")
    with pool.own() as own:
        partitions.make(own)
        partitions.make(own)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'runtime_journalentry'::regclass"
        )
        assert cursor.fetchone() == (4,)  # with the default one
        cursor.execute(
            "SELECT tableoid::regclass::text FROM runtime_journalentry WHERE run_id = %s", [run]
        )
        (where,) = cursor.fetchone()
        cursor.execute("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')")
        assert where == "runtime_journalentry_" + cursor.fetchone()[0]


def test_ids_sort_by_time(settings: Settings, desk: Rig) -> None:
    with pool.own() as own:
        ids = [
            own.execute("SELECT abeyance_uuid7(%s::timestamptz)", (f"2026-01-01 00:00:{n:02}Z",))
            for n in range(20)
        ]
    values = [row.fetchone()[0] for row in ids]  # type: ignore[index]
    assert values == sorted(values)
    assert {value.version for value in values} == {7}
    assert {value.variant for value in values} == {"specified in RFC 4122"}


@pytest.mark.parametrize("look", [due_runs.dispatch_window, leases.has_waiting_runs])
def test_a_look_for_due_runs_reads_no_other_runs(
    desk: Rig, look: Callable[[pool.Connection], object]
) -> None:
    plans: list[str] = []

    class Explaining:
        """A connection that also explains each statement."""

        def __init__(self, own: pool.Connection) -> None:
            self._own = own

        def execute(self, query: str, *given: object, **how: object) -> object:
            rows = self._own.execute(f"EXPLAIN {query}", *given)  # type: ignore[call-overload]
            plans.extend(line for (line,) in rows.fetchall())
            return self._own.execute(query, *given)  # type: ignore[call-overload]

    with pool.own() as own:
        own.execute("SET enable_seqscan = off")
        look(Explaining(own))  # type: ignore[arg-type]
    conditions = [line.partition("Index Cond: ")[2].lstrip("(") for line in plans]
    assert any(one.startswith("due_at <=") for one in conditions), "\n".join(plans)
