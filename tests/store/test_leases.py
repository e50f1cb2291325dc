"""Claims, epochs, heartbeats and the sweeper, on real Postgres."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from runtime.execution.claim import advance
from runtime.models import Run
from runtime.ports.effects import ModelRequest, Outcome
from runtime.store import leases, pool
from runtime.upkeep import due_runs
from tests.support.engine import LONG, MakeBench, Rig, claim
from tests.support.fake_ports import say, turns
from tests.support.threads import Hold, in_thread


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    return rig({"a": turns(say("done"))})


def replace() -> None:
    """Give every run to another worker."""
    with pool.open_own() as own:
        own.execute("UPDATE runtime_run SET epoch = epoch + 1, owner = %s", (uuid4(),))


def test_one_of_many_concurrent_claims_succeeds(desk: Rig) -> None:
    run, barrier = desk.start("a"), threading.Barrier(8)

    def try_it(_: int) -> leases.RunClaim | None:
        with pool.open_own() as own:
            barrier.wait()
            return claim(own, run)

    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(try_it, range(8)))
    assert len([one for one in claims if one is not None]) == 1


def test_a_replaced_owner_cannot_release_or_quarantine(own: pool.Connection, desk: Rig) -> None:
    run = desk.start("a")
    made = claim(own, run)
    assert made is not None
    replace()
    assert not leases.release(own, made, status="suspended", signal_version=0, due=None)
    assert not leases.back_off(own, made)
    assert not leases.quarantine(own, made, "because")
    assert Run.objects.get(id=run).status == "running"


def test_a_replaced_worker_writes_nothing(rig: MakeBench) -> None:
    def replaced(request: ModelRequest) -> Outcome:
        replace()
        return say("too late")

    desk = rig({"a": replaced})
    after = desk.advance(desk.start("a"))
    assert (after.status, after.position, after.output) == ("running", 2, None)


def test_a_replaced_worker_is_told_during_a_call(rig: MakeBench) -> None:
    """The heartbeat tells it: it has no step to write, and would wait for the end of the call."""
    endless = Hold(say("too late"))
    desk = rig({"a": endless})
    run = desk.start("a")
    worker = in_thread(lambda: advance(run, desk.context))
    assert endless.begun.wait(LONG)
    replace()
    worker.join(LONG)
    left = not worker.is_alive()
    endless.go_on.set()
    worker.join()
    assert left


def test_the_sweeper_hints_at_due_runs_once_per_backoff(
    own: pool.Connection, desk: Rig, hints: list[tuple[UUID, str]]
) -> None:
    runs = {desk.start("a") for _ in range(3)}
    hints.clear()
    own.execute("UPDATE runtime_run SET due_at = clock_timestamp()")
    assert [due_runs.dispatch_window(own).hints for _ in range(2)] == [3, 0]
    assert {run for run, _ in hints} == runs


@pytest.mark.parametrize("look", [due_runs.dispatch_window, leases.has_waiting_runs])
def test_a_look_for_due_runs_reads_no_other_runs(
    own: pool.Connection,
    desk: Rig,
    look: Callable[[pool.Connection], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[str] = []
    execute = own.execute

    def explained(query: str, *given: object, **_: object) -> object:
        rows = execute(f"EXPLAIN {query}", *given)  # type: ignore[call-overload]
        plans.extend(line for (line,) in rows.fetchall())
        return execute(query, *given)  # type: ignore[call-overload]

    own.execute("SET enable_seqscan = off")
    monkeypatch.setattr(own, "execute", explained)
    look(own)
    conditions = [line.partition("Index Cond: ")[2].lstrip("(") for line in plans]
    assert any(one.startswith("due_at <=") for one in conditions), "\n".join(plans)
