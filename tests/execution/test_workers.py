"""A worker process: its lease, its end, the slots of its runs, when it yields one, and runs that kill it."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID, uuid4

import psycopg
import pytest
from pytest_django import Settings

from runtime import broker
from runtime.control.interventions import send_message
from runtime.core.values.enums import EffectClass
from runtime.errors import RunEnded
from runtime.execution import heartbeat, worker
from runtime.execution.claim import advance, prepare
from runtime.execution.heartbeat import ClaimedRun, Heartbeat, Lease
from runtime.execution.worker import RunSlots
from runtime.models import JournalEntry, LostLease, Run, WorkerProcess
from runtime.ports.agents import TurnBoundary
from runtime.ports.effects import ModelAnswer, ModelRequest, Outcome, ToolRequest, ToolResult
from runtime.store import leases, loading, pool
from runtime.upkeep import due_runs
from tests.support.calls import around
from tests.support.engine import ADA, LONG, Death, MakeBench, Rig, at_failpoint, die, lose, types
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import Hold, holding


@pytest.fixture
def hold() -> Iterator[Hold]:
    """The body of a tool that waits until the test is over."""
    one = Hold(ToolResult(value="done"))
    yield one
    one.go_on.set()


@pytest.fixture
def busy(rig: MakeBench, hold: Hold, settings: Settings) -> Rig:
    settings.SIGNOFF_LEASE_SECONDS = 4.0
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(body=hold))


def renewals(busy: Rig) -> Callable[[], bool | None]:
    """Tell whether the lease was renewed twice since now: the first time may have been under way."""
    seen = set[object]()

    def renewed() -> bool | None:
        seen.add(WorkerProcess.objects.get(id=busy.heartbeat.worker).lease_until)
        return len(seen) > 2 or None

    return renewed


def test_one_row_renews_all_leases_despite_a_locked_run(busy: Rig, hold: Hold) -> None:
    assert busy.heartbeat.lease.is_valid(), "before the first run is claimed"
    locked, other = busy.start("a"), busy.start("a")
    with holding(busy, locked, hold), holding(busy, other, hold):
        until(lambda: len(busy.effects.calls) == 2 or None, "both tools to begin")
        before = list(Run.objects.order_by("id").values())
        with pool.open_own() as own, own.transaction():
            own.execute("SELECT FROM runtime_run WHERE id = %s FOR UPDATE", (locked,))
            until(renewals(busy), "the lease to be renewed", within=60)
            assert not busy.held(locked).lost.is_set()
        assert list(Run.objects.order_by("id").values()) == before, "a heartbeat writes no run"
    assert {row.status for row in Run.objects.all()} == {"completed"}


def test_no_effect_may_start_while_the_lease_is_not_renewed(busy: Rig, hold: Hold) -> None:
    """The lease may have expired, though the run is not lost. The renewal wakes the runner that asked."""
    run, woken = busy.start("a"), threading.Event()
    with holding(busy, run, hold):
        held = busy.held(run)
        until(renewals(busy), "the mailbox to be known", within=60)
        with pool.open_own() as own, own.transaction():
            own.execute("SELECT FROM runtime_workerprocess FOR UPDATE")
            until(lambda: not held.has_budget() or None, "the budget to be spent", within=60)
            assert not held.lost.is_set()
            wake, held.wake = held.wake, woken.set
        assert woken.wait(60)
        assert held.has_budget()
        held.wake = wake


@pytest.mark.parametrize("cut", ["the answer to the claim", "what follows"])
def test_a_run_that_a_live_process_does_not_work_on_is_released(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """The lease of the process stays valid, so no sweeper would ever take the run over."""
    desk = rig({"a": turns(say("done"))})
    run = desk.start("a")

    def fail(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("cut off")

    with monkeypatch.context() as patch:
        if cut == "the answer to the claim":
            around(patch, loading, "claim", after=fail)
        else:
            patch.setattr("runtime.execution.claim._load", fail)
        with suppress(psycopg.OperationalError):
            desk.advance(run)
    until(lambda: Run.objects.get(id=run).owner is None or None, "the run to be released")
    assert desk.advance(run).status == "completed"
    assert LostLease.objects.count() == 0


def test_a_heartbeat_outlives_an_error_that_is_not_postgres(
    busy: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = [RuntimeError("an unforeseen error")]

    def fail_once(*_: object) -> None:
        if left:
            raise left.pop()

    around(monkeypatch, Heartbeat, "_renew", before=fail_once)
    until(lambda: not left or None, "the error", within=60)
    until(renewals(busy), "a beat after that", within=60)
    assert "Heartbeat missed: an unforeseen error" in caplog.text


def test_a_machine_that_slept_past_a_lease_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a machine sleeps CLOCK_MONOTONIC stands still; CLOCK_BOOTTIME does not."""
    place = {"run": uuid4(), "owner": uuid4(), "epoch": 1, "position": 1, "head": ""}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    claim = leases.RunClaim(previous="queued", at=at, continuation_position=0, **place)  # type: ignore[arg-type]
    held = ClaimedRun(claim=claim, lease=Lease(), wake=lambda: None)
    held.lease.record_renewal(heartbeat.elapsed())
    assert held.has_budget()
    awake, (clock,) = heartbeat.elapsed, heartbeat.elapsed.args
    asleep = {time.CLOCK_BOOTTIME: 3600.0}
    monkeypatch.setattr(heartbeat, "elapsed", lambda: awake() + asleep.get(clock, 0.0))
    assert not held.has_budget()


CALLS = 6
WAITING = 24  # more than the connections of pool, heartbeat and test


@pytest.mark.parametrize("gated", [False, True])
def test_a_drain_journals_running_calls_and_starts_none(
    rig: MakeBench, hints: list[tuple[UUID, str]], gated: bool
) -> None:

    def body(request: ToolRequest) -> Outcome:
        desk.heartbeat.drain(LONG)
        return ToolResult(value="done")

    calls = ask(("t", {}), ("u", {})) if gated else ask(("t", {}))
    desk = rig({"a": turns(calls, say("done"))}, t=FakeTool(body=body), u=FakeTool(gated=True))
    started = desk.start("a")
    hints.clear()
    run = desk.advance(started)
    assert (run.status, run.owner) == ("suspended" if gated else "queued", None)
    assert types(run.id)[-1] == "ToolReturned"
    assert len(desk.effects.models) == 1
    assert [sent for sent, _ in hints] == ([] if gated else [run.id])
    assert advance(desk.start("a"), desk.context) is False, "it claims no run any more"
    other = rig(desk.effects.agents, **desk.effects.tools)
    assert other.advance(run.id).status == ("suspended" if gated else "completed")
    assert other.effects.calls == []


@pytest.mark.parametrize(
    ("effect", "status"), [(EffectClass.WRITE, "suspended"), (EffectClass.IDEMPOTENT, "completed")]
)
def test_a_drain_obeys_the_effect_class(rig: MakeBench, effect: EffectClass, status: str) -> None:
    release = threading.Event()

    def body(request: ToolRequest) -> Outcome:
        if request.attempt == 1:
            desk.heartbeat.drain(0.0)
            desk.heartbeat.drain(LONG)  # only the first word on the end counts
            assert desk.heartbeat.draining.is_over()
            release.wait(60)
        return ToolResult(value="done")

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(effect=effect, body=body))
    run = desk.advance(desk.start("a"))
    assert (run.status, run.owner) == ("queued", None)
    assert types(run.id)[-1] == "ToolStarted"
    assert desk.context.effect_pool.is_busy()
    other = rig(desk.effects.agents, **desk.effects.tools)
    assert other.advance(run.id).status == status
    release.set()
    kinds = [gate.kind for gate in desk.open_gates(run.id)]
    assert kinds == (["in_doubt"] if effect is EffectClass.WRITE else [])


# Other runs that wait


def test_a_worker_has_planned_a_claim_before_its_first_run(rig: MakeBench) -> None:
    desk = rig({})
    pool.close()
    prepare(desk.context)
    with pool.pooled() as connection:
        plans = (
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%epoch = epoch + 1%'"
        )
        assert connection.execute(plans).fetchall() == [(1,)]


@pytest.mark.parametrize(("steps", "calls"), [(4, range(1, CALLS)), (1000, [3])])  # or after 33 s
def test_a_run_of_many_or_slow_steps_yields_to_waiting_runs(
    rig: MakeBench,
    hints: list[tuple[UUID, str]],
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    calls: Sequence[int],
) -> None:
    now = 0.0
    monkeypatch.setattr(worker, "YIELD_STEPS", steps)
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now))

    def slow(request: ToolRequest) -> ToolResult:
        nonlocal now
        now += 11.0 if steps == 1000 else 0.0
        return ToolResult(value=request.args)

    turns_ = [ask(("t", {"n": number})) for number in range(CALLS)]
    desk = rig({"a": turns(*turns_, say("done"))}, t=FakeTool(body=slow))
    alone = desk.advance(desk.start("a"))
    assert (alone.status, alone.epoch) == ("completed", 1), "no other run waits"
    desk.effects.calls.clear()
    run, other = desk.start("a"), desk.start("a")
    hints.clear()
    row = desk.advance(run)
    assert (row.status, row.owner) == ("queued", None)
    assert hints == [(run, broker.NEW)]
    assert len(desk.effects.calls) in calls
    while desk.advance(other).status != "completed":
        assert desk.advance(run).owner is None
    while desk.advance(run).status != "completed":
        pass
    assert len(desk.effects.calls) == 2 * CALLS


# Slots


def test_a_waiting_run_releases_its_slot_and_acquires_one_again() -> None:
    two, waiting, go_on = RunSlots(2), threading.Event(), threading.Event()

    def wait() -> None:
        two.acquire()
        two.release()
        waiting.set()
        go_on.wait(60)
        two.acquire()

    with ThreadPoolExecutor(3) as pool:
        waits = pool.submit(wait)
        assert waiting.wait(60)
        two.acquire()
        assert two.has_free_slot()
        two.acquire()
        assert not two.has_free_slot()
        go_on.set()
        assert not waits.done()  # no slot is free yet
        two.release()
        waits.result(60)


def test_runs_of_slow_models_hold_nothing(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    all_wait, connected = threading.Barrier(WAITING), list[int]()

    def slow(request: ModelRequest) -> ModelAnswer:
        if all_wait.wait(30) == 0:  # all wait, or none of them is answered
            connected.append(_connected())
        return ask(("t", {}))

    def rule(boundary: TurnBoundary) -> str:
        return "" if Run.objects.exists() else "there are no runs"  # with Django's connection

    desk = rig({"a": slow}, t=FakeTool(gated=True))
    monkeypatch.setattr(desk.effects, "hold_reason", rule)
    bench = replace(desk.context, slots=RunSlots(2))
    runs = [desk.start("a") for _ in range(WAITING)]
    with ThreadPoolExecutor(WAITING) as pool:
        assert all(pool.map(lambda run: advance(run, bench), runs))
    assert [len(desk.open_gates(run)) for run in runs] == [1] * WAITING
    assert max(connected) < WAITING


def _connected() -> int:
    with pool.open_own() as own:
        row = own.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def die_at(desk: Rig, run: UUID, types_so_far: str, *, isolated: bool = False) -> None:
    """Let a worker claim the run and die right after it commits the next event of this kind."""
    with at_failpoint(f"committed:{types_so_far}", die), pytest.raises(Death):
        advance(run, desk.context, isolated=isolated)
    lose(run)


def repeatable(rig: MakeBench, effect: EffectClass = EffectClass.IDEMPOTENT) -> Rig:
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(effect=effect))


def die_twice(desk: Rig, run: UUID) -> None:
    """Let two workers in a row die in the middle of its call."""
    die_at(desk, run, "ToolStarted")
    die_at(desk, run, "ToolStarted")


def test_a_suspected_run_that_makes_progress_is_an_ordinary_one_again(
    rig: MakeBench, hints: list[tuple[UUID, str]]
) -> None:
    desk = repeatable(rig)
    run = desk.start("a")
    die_twice(desk, run)
    assert desk.advance_once(run).isolated
    hints.clear()
    row = desk.advance_once(run)
    assert row.owner is None, "an ordinary worker does not take it"
    with pool.open_own() as own:
        due_runs.dispatch_window(own)
    assert hints == []
    assert Run.objects.get(id=run).due_at == row.due_at, "it keeps its number in the queue"
    assert desk.effects.calls == []
    advance(run, desk.context, isolated=True)
    row = Run.objects.get(id=run)
    assert (row.status, row.isolated, row.losses) == ("queued", False, 0)
    assert types(run)[-1] == "ToolReturned"
    assert len(desk.effects.models) == 1  # the trial is over; an ordinary worker asks the model
    assert desk.advance_once(run).status == "completed"


@pytest.mark.parametrize(
    ("effect", "died_at", "status"),
    [
        (EffectClass.WRITE, "ToolStarted", "suspended"),  # its call is in doubt
        (EffectClass.IDEMPOTENT, "ToolStarted", "completed"),  # its call is repeated
        (EffectClass.IDEMPOTENT, "FrameOpened", "completed"),  # its model is called again
    ],
)
def test_one_loss_makes_no_run_suspected(
    rig: MakeBench, effect: EffectClass, died_at: str, status: str
) -> None:
    desk = repeatable(rig, effect)
    run = desk.start("a")
    die_at(desk, run, died_at)
    row = desk.advance_once(run)
    assert (row.status, row.isolated, row.losses) == (status, False, 0)
    assert LostLease.objects.filter(run=run).count() == 1


def test_losses_with_progress_between_make_no_run_suspected(rig: MakeBench) -> None:
    """Else a run of many steps would be suspected after its second worker, however far it came between."""
    desk = rig({"a": turns(ask(("t", {})), ask(("t", {})), say("done"))}, t=FakeTool())
    run = desk.start("a")
    die_at(desk, run, "FrameOpened")
    for _ in range(2):
        die_at(desk, run, "ToolReturned")
    assert Run.objects.get(id=run).losses == 1
    assert desk.advance_once(run).status == "completed"


def test_a_run_that_kills_workers_on_loading_is_quarantined(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.SIGNOFF_POISON_LOSSES = 2
    desk = repeatable(rig)
    run, deaths = desk.start("a"), 0
    monkeypatch.setattr("runtime.execution.claim._load", die)
    while (row := Run.objects.get(id=run)).status != "quarantined":
        with suppress(RunEnded):
            send_message(run=run, actor=ADA, text="How is it going?")
        try:
            advance(run, desk.context, isolated=row.isolated)
        except Death:
            deaths += 1
            lose(run)
            assert deaths < 10
    assert deaths == 6, "two workers, as many groups, and two alone"
    assert (row.status, row.due_at, row.owner) == ("quarantined", None, None)
    assert str(row.reason).startswith("2 workers in a row died")
    isolated = LostLease.objects.order_by("id").values_list("isolated", flat=True)
    assert list(isolated) == [False, False, True, True, True, True]
    assert {(loss.host, loss.process, loss.position) for loss in LostLease.objects.all()} == {
        (socket.gethostname(), os.getpid(), row.position)
    }
    assert advance(run, desk.context, isolated=True) is False


def test_a_heartbeat_stores_the_steps_of_a_run(gated: Rig) -> None:
    run = gated.start("a")
    assert gated.advance(run).status == "suspended"
    with pool.open_own() as connection:
        gated.heartbeat._beat(connection)
    measures = WorkerProcess.objects.get(id=gated.heartbeat.worker).measures
    entries = JournalEntry.objects.filter(run_id=run).count()
    assert sum(measures["buckets"]) == entries - 1  # the first one was written at the start
    assert measures["seconds"] > 0
