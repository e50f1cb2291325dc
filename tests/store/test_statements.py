"""The conditions of each store's SQL, on real Postgres."""

import functools
import os
import random
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, transaction
from django.utils import timezone

from runtime import broker
from runtime.control.interventions import pause, send_message
from runtime.core.values.enums import Decision, Verdict
from runtime.errors import GateNotOpen, RunEnded
from runtime.execution import heartbeat
from runtime.models import (
    Gate,
    JournalEntry,
    KillSwitch,
    LostLease,
    Run,
    Signal,
    SweeperLoop,
    WorkerProcess,
)
from runtime.store import gates, leases, loading, pool, runs, steps, workers
from runtime.store.pool import Connection
from runtime.store.tables import journal, signals
from runtime.upkeep import due_runs, retention
from tests.support.calls import around
from tests.support.engine import ADA, Rig, claim
from tests.support.threads import in_thread, wait_until_blocked

PAST = timedelta(hours=-1)
Result = steps.CommitResult


@pytest.fixture
def last(gated: Rig, continued: None, monkeypatch: pytest.MonkeyPatch) -> steps.Step:
    """The step that opens the gate and lets go of the run; its worker held it back, and has the run still."""
    held: list[steps.Step] = []

    def hold_back(_: object, step: steps.Step, *__: object) -> steps.CommitResult | None:
        held.extend([step] * step.release)
        return Result.LOST if step.release else None

    with monkeypatch.context() as patch:
        around(patch, steps, "commit", before=hold_back)
        gated.advance(gated.start("a"))
    (step,) = held
    return step


def row(run: UUID, **values: object) -> None:
    Run.objects.filter(id=run).update(**values)


@pytest.fixture
def run(gated: Rig) -> UUID:
    """A run that no worker has had yet."""
    return gated.start("a")


@pytest.fixture
def made(own: Connection, run: UUID) -> leases.RunClaim:
    """A claim of that run."""
    found = claim(own, run)
    assert found is not None
    return found


# The step


def test_a_step_requires_epoch_owner_and_position(own: Connection, last: steps.Step) -> None:
    run = last.claim.run
    good = Run.objects.values("epoch", "owner", "position").get(id=run)
    for change in ({"epoch": 99}, {"owner": UUID(int=1)}, {"owner": None}, {"position": 1}):
        row(run, **{**good, **change})
        before = Run.objects.values().get(id=run)
        assert steps.commit(own, last) is Result.LOST, change
        assert Run.objects.values().get(id=run) == before
    assert JournalEntry.objects.filter(run_id=run, position=last.entry.position).count() == 0
    assert Gate.objects.filter(run=run).count() == 0


def test_a_release_requires_the_signal_count_it_read(own: Connection, last: steps.Step) -> None:
    run = last.claim.run
    pause(run=run, actor=ADA, reason="")
    (signal,) = Signal.objects.filter(run=run)
    taking = replace(last, signals=(signal.id,))
    assert steps.commit(own, taking) is Result.NEW_SIGNALS
    assert Signal.objects.filter(run=run).count() == 1
    assert Gate.objects.filter(run=run).count() == 0
    going_on = replace(last, release=False, continuation=None, opened_gates=())
    assert steps.commit(own, going_on) is Result.WRITTEN
    assert Run.objects.get(id=run).owner == last.claim.owner


def test_a_step_with_a_lost_answer_is_known_as_written(own: Connection, last: steps.Step) -> None:
    assert steps.commit(own, last) is Result.WRITTEN
    entries = JournalEntry.objects.filter(run_id=last.claim.run).count()
    assert steps.commit(own, last) is Result.WRITTEN, "though it writes nothing now"
    assert JournalEntry.objects.filter(run_id=last.claim.run).count() == entries
    other = replace(last, entry=replace(last.entry, commit_id=uuid4()))
    assert steps.commit(own, other) is Result.LOST
    assert not journal.was_written(own, other.entry)
    with pytest.raises(psycopg.errors.UniqueViolation):
        journal.append_first(own, other.entry)


def test_neither_a_tool_s_seed_nor_a_fork_repeats_a_commit_id() -> None:
    def one() -> bytes:
        random.seed(7)
        return journal.sign_text(UUID(int=1), 1, "", "{}").commit_id.bytes

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, one())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        assert len({told.read(), one(), one()}) == 3


def test_a_step_that_lets_go_leaves_the_row_to_the_next(own: Connection, last: steps.Step) -> None:
    due = timezone.now() + timedelta(hours=1)
    row(last.claim.run, losses=2, isolated=True)
    steps.commit(own, replace(last, due=due))
    found = Run.objects.get(id=last.claim.run)
    assert (found.owner, found.due_at) == (None, due)
    assert (found.losses, found.isolated) == (0, False)
    assert (found.base, found.position) == (last.entry.position, last.entry.position)


def test_a_step_changes_gates_only_in_valid_states(own: Connection, last: steps.Step) -> None:
    gate = last.opened_gates[0].gate
    going_on = replace(last, release=False, continuation=None)
    for state, took, shut in (
        ("open", "open", "closed"),
        ("decided", "effective", "closed"),
        ("closed", "closed", "closed"),
        ("effective", "effective", "effective"),
    ):
        for taken, closed, after in (((gate,), (), took), ((), (gate,), shut)):
            with own.transaction(force_rollback=True):
                steps.commit(own, going_on)
                own.execute("UPDATE runtime_gate SET state = %s WHERE id = %s", (state, gate))
                own.execute("UPDATE runtime_run SET position = position - 1")
                own.execute(
                    "DELETE FROM runtime_journalentry WHERE position = %s", (last.entry.position,)
                )
                again = replace(going_on, opened_gates=(), settled=taken, closed=closed)
                steps.commit(own, again)
                found = own.execute("SELECT state FROM runtime_gate WHERE id = %s", (gate,))
                assert found.fetchone() == (after,)


# The claim and what ends it


def alive(*, for_seconds: float) -> UUID:
    """A worker process with a lease, which may be over."""
    until = timezone.now() + timedelta(seconds=for_seconds)
    made = WorkerProcess.objects.create(
        id=uuid4(), host="here", process=1, agents="{}", lease_until=until
    )
    return made.id


def test_only_a_sweeper_takes_over_a_run_after_its_lease(own: Connection, gated: Rig) -> None:
    held, lost, run_of_a_stranger, free = (gated.start("a") for _ in range(4))
    row(free, due_at=timezone.now() + PAST)
    processes = {held: alive(for_seconds=60), lost: alive(for_seconds=-1)}
    processes[run_of_a_stranger] = uuid4()  # of which there is no row
    for run, worker in processes.items():
        assert claim(own, run, worker=worker) is not None
        row(run, due_at=timezone.now() + PAST)
        assert claim(own, run) is None
    assert taken(own, may_take_over=False) == [free]
    assert set(taken(own)) == {lost, run_of_a_stranger}
    assert claim(own, held) is None
    second = claim(own, lost)
    assert second is not None
    assert (second.epoch, second.lost_leases) == (2, 1)
    assert set(LostLease.objects.values_list("run", "worker", "position")) == {
        (run, processes[run], 1) for run in (lost, run_of_a_stranger)
    }


def test_losses_count_together_until_the_owner_clears_them(own: Connection, run: UUID) -> None:
    claims = list[leases.RunClaim]()
    for position in (1, 1, 2, 3):
        row(run, position=position, due_at=timezone.now() + PAST)
        taken(own)
        claimed = claim(own, run)
        assert claimed is not None
        claims.append(claimed)
    assert [claimed.lost_leases for claimed in claims] == [0, 1, 2, 3]
    current = claims[-1]
    for stale in (replace(current, owner=uuid4()), replace(current, epoch=1)):
        leases.clear_losses(own, stale)
    assert Run.objects.get(id=run).losses == 3
    leases.clear_losses(own, current)
    assert Run.objects.get(id=run).losses == 0


def test_a_claim_leaves_the_run_due(own: Connection, run: UUID) -> None:
    due = Run.objects.get(id=run).due_at
    assert claim(own, run) is not None
    assert Run.objects.get(id=run).due_at == due, "to move it would write every index of the row"


def test_a_run_changed_during_a_claim_is_read_again(own: Connection, run: UUID) -> None:
    """The claim's row is younger than the journal that it read: a trap holds it between the two."""
    own.execute(
        """
        CREATE SCHEMA trap;
        CREATE FUNCTION trap.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS $$
            SELECT pg_advisory_lock_shared(4711);
            SELECT pg_advisory_unlock_shared(4711);
            SELECT pg_catalog.clock_timestamp() $$
        """
    )
    found: list[Any] = []
    with connection.cursor() as cursor:
        try:
            cursor.execute("SELECT pg_advisory_lock(4711)")
            own.execute("SET search_path TO trap, public, pg_catalog")
            thread = in_thread(lambda: found.append(loading.claim(own, run, owner=uuid4())))
            wait_until_blocked()
            send_message(run=run, actor=ADA, text="How is it going?")
            cursor.execute("SELECT pg_advisory_unlock(4711)")
            thread.join()
        finally:
            cursor.execute("DROP SCHEMA trap CASCADE")
    ((made, stored),) = found
    assert stored.read_pending_signals().count == 1
    assert len(stored.read_pending_signals().due) == 1
    assert made.previous == "queued"


def test_a_claim_does_not_wait_for_a_locked_row(own: Connection, run: UUID) -> None:
    with transaction.atomic():
        Run.objects.select_for_update().get(id=run)
        own.execute("SET lock_timeout = '200ms'")
        assert claim(own, run) is None
    assert claim(own, run) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"owner": UUID(int=1)},
        {"isolated": True},
        {"due_at": None},
        {"due_at": datetime(3000, 1, 1, tzinfo=UTC)},
        {"status": "quarantined"},
        {},
    ],
    ids=["another's", "isolated", "not due", "due later", "parked", "stopped"],
)
def test_a_run_not_free_is_not_claimed(own: Connection, run: UUID, change: dict[str, Any]) -> None:
    if change:
        row(run, **change)
    else:
        KillSwitch.objects.create(agent="a", reason="because")
    before = Run.objects.values().get(id=run)
    assert claim(own, run) is None
    assert Run.objects.values().get(id=run) == before
    is_isolated = "isolated" in change
    assert (claim(own, run, isolated=True) is not None) is is_isolated


def taken(own: Connection, *, may_take_over: bool = True) -> list[UUID]:
    """The runs that a sweeper would send a hint for, the oldest first."""
    found = due_runs._select(
        own,
        broker.QUEUES,
        may_take_over=may_take_over,
        after=due_runs.BEGINNING,
        until=due_runs.END,
    )
    return [run for run, _, _ in found]


def test_a_release_needs_the_mailbox_and_backing_off_does_not(
    own: Connection, run: UUID, made: leases.RunClaim
) -> None:
    row(run, mailbox=3)
    assert not leases.release(own, made, status="suspended", signal_version=2, due=None)
    assert Run.objects.get(id=run).owner == made.owner
    for position, status, after in ((0, "running", "queued"), (1, "paused", "paused")):
        row(run, position=made.position + position, status=status, owner=made.owner)
        assert leases.back_off(own, made)
        assert Run.objects.values_list("status", "owner").get(id=run) == (after, None)


# The mailbox


def test_a_ring_makes_a_run_due_earlier_and_never_later(own: Connection, run: UUID) -> None:
    moment = timedelta(seconds=leases.HINT_SECONDS)
    created, started = Run.objects.values_list("created_at", "due_at").get(id=run)
    assert started is not None
    assert started >= created + moment
    due, late = (timezone.now() + timedelta(hours=hours) for hours in (-1, 1))
    row(run, due_at=due)
    runs.notify_signal(own, run)
    assert Run.objects.get(id=run).due_at == due
    row(run, due_at=late)
    began = pool.read_clock(own)
    runs.notify_signal(own, run)
    found = Run.objects.get(id=run)
    assert found.due_at is not None
    assert began + moment <= found.due_at < late
    assert found.mailbox == 2
    assert claim(own, run) is not None  # whom the hint reaches need not wait


def test_a_ring_makes_no_run_due_that_is_parked_or_over(own: Connection, run: UUID) -> None:
    row(run, status="quarantined", due_at=None)
    runs.notify_signal(own, run)
    assert Run.objects.get(id=run).due_at is None
    row(run, ended_at=timezone.now(), status="completed")
    with pytest.raises(RunEnded):
        runs.notify_signal(own, run)
    assert Run.objects.get(id=run).due_at is None


# Signals


def test_signals_count_from_their_effective_time_and_can_be_withdrawn_before(
    own: Connection, gated: Rig
) -> None:
    run, other = gated.start("a"), gated.start("a")
    later, latest = (timezone.now() + timedelta(hours=hours) for hours in (1, 2))
    made = [uuid4() for _ in range(4)]
    for to, gate, at in zip(
        (run, run, run, other), made, (latest, None, later, later), strict=True
    ):
        body = signals.encode_decision(gate, Decision(verdict=Verdict.APPROVE, by="bea"))
        own.execute(
            f"WITH decided AS (SELECT %(run)s::uuid AS run_id) {signals.SEND}",
            {"run": to, "kind": signals.GATE_DECIDED, "body": body, "effective_at": at},
        )
    mail = signals.read(own, run)
    assert (len(mail.due), mail.next) == (1, later)
    assert len(signals.list_waiting_signals(own, run)) == 3
    assert signals.withdraw(own, run, made[1]) == []
    assert signals.withdraw(own, run, made[2]) == [made[2]]
    assert signals.withdraw(own, run) == [made[0]]
    assert [len(signals.list_waiting_signals(own, one)) for one in (run, other)] == [1, 1]


def test_signals_are_read_in_the_order_they_were_sent(own: Connection, run: UUID) -> None:
    signals.send(own, run, signals.PauseSignal(by="ada", reason=""))
    signals.send(own, run, signals.ResumeSignal(by="ada"))
    kinds = [type(one).__name__ for one in signals.read(own, run).due]
    assert kinds == ["PauseSignal", "ResumeSignal"]
    assert signals.find_last_kind(own, run, signals.PAUSE, signals.RESUME) == signals.RESUME
    assert signals.find_last_kind(own, run, signals.CANCEL) is None


# Gates


@pytest.mark.parametrize("state", ["open", "decided", "closed", "effective"])
def test_each_change_of_a_gate_needs_its_state(own: Connection, gated: Rig, state: str) -> None:
    run, other = (gated.advance(gated.start("a")).id for _ in range(2))
    (gate,) = gated.open_gates(run)
    Gate.objects.filter(id=gate.id).update(state=state)
    decision = Decision(verdict=Verdict.APPROVE, by="bea")
    decide = functools.partial(gates.settle, decision=decision, effective_at=None)
    acts = (
        (lambda: decide(own, gate=gate.id), "open"),
        (lambda: gates.reopen(own, gate.id), "decided"),
    )
    for act, from_state in acts:
        with own.transaction(force_rollback=True):
            if state == from_state:
                act()
            else:
                with pytest.raises(GateNotOpen):
                    act()
    with own.transaction(force_rollback=True):
        assert gates.close_open(own, run) == ([gate.id] if state == "open" else [])
    gates.close_decided(own, [gate.id])
    after = "closed" if state == "decided" else state
    assert Gate.objects.get(id=gate.id).state == after
    assert len(gated.open_gates(other)) == 1
    with pytest.raises(GateNotOpen):
        gates.find_run(own, uuid4())


def test_ids_of_gates_are_in_the_order_of_their_time(gated: Rig) -> None:
    opened = [Gate.objects.get(run=gated.advance(gated.start("a")).id) for _ in range(3)]
    assert sorted(opened, key=lambda gate: gate.opened_at) == sorted(opened, key=lambda one: one.id)
    assert {gate.id.version for gate in opened} == {7}


# Processes


def test_a_heartbeat_renews_its_own_worker_and_reads_signal_counts_of_its_own_runs(
    own: Connection, run: UUID, made: leases.RunClaim
) -> None:
    given = {"host": "here", "process": 1, "agents": "{}", "isolated": False, "hung": False}
    given["measures"] = "{}"
    one, other = uuid4(), uuid4()

    def beat(worker: UUID, owner: UUID) -> tuple[object, ...]:
        values = {**given, "lease": 60.0, "worker": worker, "runs": [run], "owners": [owner]}
        (found,) = own.execute(heartbeat.STATEMENT, values).fetchall()
        return found[:2]

    assert beat(other, uuid4()) == (None, None)
    assert beat(one, made.owner) == (made.owner, 0)
    long_ago = timezone.now() - timedelta(hours=2)
    WorkerProcess.objects.update(beat_at=long_ago)
    beat(one, made.owner)
    assert WorkerProcess.objects.get(id=one).beat_at > long_ago
    assert WorkerProcess.objects.get(id=other).beat_at == long_ago


def test_only_workers_and_sweepers_long_gone_are_forgotten(own: Connection) -> None:
    for hours in (0, 23, 25):
        at = timezone.now() - timedelta(hours=hours)
        worker = WorkerProcess.objects.create(id=uuid4(), host=f"{hours}", process=1)
        WorkerProcess.objects.filter(id=worker.id).update(beat_at=at)
        for name in (f"{workers.SWEEPER}{hours}", f"loop {hours}"):
            SweeperLoop.objects.create(name=name, done_at=at)
    retention.enforce(own, threading.Event())
    assert set(WorkerProcess.objects.values_list("host", flat=True)) == {"0", "23"}
    left = set(SweeperLoop.objects.values_list("name", flat=True))
    assert {f"{workers.SWEEPER}0", f"{workers.SWEEPER}23", "loop 25"} <= left  # known as late
    assert f"{workers.SWEEPER}25" not in left
