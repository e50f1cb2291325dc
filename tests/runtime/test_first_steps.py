"""The first step claims the run: what there is before it, who wins of several, and what is claimed beforehand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connections, transaction
from pytest_django import Settings

from runtime.control import engine
from runtime.core.decisions import Verdict
from runtime.errors import RunEnded
from runtime.execution import claim as advancing
from runtime.execution.claim import advance
from runtime.execution.commit import Loaded
from runtime.models import Gate, Loss, Run
from runtime.ports import ModelRequest, Outcome, ToolRequest, ToolResult
from runtime.store import leases, pool, steps
from runtime.store.leases import Claim
from runtime.store.loading import Stored
from runtime.store.pool import Connection
from runtime.upkeep import due_runs
from tests.fakes.ports import FakeTool, ask, say, turns
from tests.runtime.conftest import ADA, MakeBench, Rig
from tests.runtime.test_advance import types
from tests.runtime.test_poison import outlive

LOADED = advancing._load
COMMITTED = steps.commit


class _Death(BaseException):
    """The worker is gone."""


@contextmanager
def at_the_first(point: str, act: Callable[[], object]) -> Iterator[None]:
    """Do something when this point is passed for the first time."""
    left = [point]

    def pass_by(moment: str, kind: str, depth: int) -> None:
        if left == [f"{moment}:{kind}"]:
            left.clear()
            act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.store.failpoints.pass_by", pass_by)
        yield
    assert not left


def row(run: UUID) -> Run:
    """As it is, asked on a connection of its own."""
    with transaction.atomic():
        return Run.objects.get(id=run)


def die() -> None:
    raise _Death


def sweep() -> None:
    """As it is done a while later."""
    with pool.own() as own:
        own.execute("UPDATE runtime_run SET due_at = '2000-01-01' WHERE due_at IS NOT NULL")
        due_runs.look(own)


@pytest.fixture
def unclaimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is claimed by a statement of its own."""

    def claim(*_: object, **__: object) -> None:
        raise AssertionError("claimed before it was loaded")

    monkeypatch.setattr(leases, "claim", claim)


def suspended(rig: MakeBench) -> tuple[Rig, UUID]:
    """A run that waits for Bea, with her approval on its way."""
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.start("a")
    assert desk.advance(run).status == "suspended"
    (gate,) = desk.open_gates(run)
    desk.decide(gate.id, Verdict.APPROVE)
    return desk, run


@pytest.mark.usefixtures("unclaimed")
def test_nothing_is_written_before_the_first_step_and_that_claims_the_run(rig: MakeBench) -> None:
    asked: list[Run] = []

    def reply(request: ModelRequest) -> Outcome:
        asked.append(row(request.run))
        connections.close_all()  # this thread's
        return say("done")

    desk = rig({"a": reply})
    run = desk.start("a")
    start = Run.objects.values().get(id=run)

    def untouched() -> None:
        assert Run.objects.values().get(id=run) == start

    with at_the_first("before:FrameOpened", untouched):
        assert desk.advance(run).status == "completed"
    (while_asked,) = asked
    assert (while_asked.epoch, while_asked.worker) == (1, desk.heartbeat.worker)
    assert while_asked.owner is not None
    assert while_asked.lease_until is not None
    assert while_asked.due_at == start["due_at"] is not None
    assert while_asked.lease_until > start["due_at"]


@pytest.mark.usefixtures("unclaimed")
def test_a_decision_is_taken_up_by_the_step_that_claims(rig: MakeBench) -> None:
    desk, run = suspended(rig)
    assert desk.advance(run).status == "completed"
    assert row(run).epoch == 2


@pytest.mark.parametrize("held", [False, True], ids=["on the pool", "with a gate"])
@pytest.mark.parametrize("same", [False, True], ids=["two processes", "one process"])
def test_of_two_that_look_at_one_run_the_first_to_write_has_it(
    rig: MakeBench, caplog: pytest.LogCaptureFixture, same: bool, held: bool
) -> None:
    script = turns(ask(("t", {})), say("done"))
    desk = rig({"a": script}, t=FakeTool())
    other = desk if same else rig({"a": script}, t=FakeTool())
    run = desk.start("a")
    if held:
        desk.effects.holds = ["why"]
        other.effects.holds = ["why", "why"][: 2 if same else 1]

    def overtake() -> None:
        assert advance(run, other.bench)

    point = "GateOpened" if held else "FrameOpened"
    with at_the_first(f"before:{point}", overtake):
        assert advance(run, desk.bench) is False
    assert row(run).status == ("suspended" if held else "completed")
    assert row(run).epoch == 1
    assert types(run).count("FrameOpened") == 1
    assert Gate.objects.filter(run=run).count() == held
    assert len(other.effects.models) == (0 if held else 2)
    assert same or desk.effects.models == []
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


def test_what_somebody_else_wrote_while_a_run_was_loaded_is_not_taken_for_a_forgery(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk, run = suspended(rig)
    overtaken: list[bool] = []

    def load(claim: Claim, stored: Stored) -> Loaded:
        if not overtaken:
            overtaken.append(True)
            assert advance(run, desk.bench)
        return LOADED(claim, stored)

    monkeypatch.setattr(advancing, "_load", load)
    assert advance(run, desk.bench) is False
    assert row(run).status == "completed"
    assert len(desk.effects.calls) == 1
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


def test_the_lease_of_whoever_was_faster_is_renewed_in_the_same_process(rig: MakeBench) -> None:
    """Both are known to the heartbeat for a while; the one that loses takes nothing of the other's away."""
    desk: Rig

    def reply(request: ModelRequest) -> Outcome:
        winner = desk.held(request.run)
        with pool.own() as own:
            assert advance(request.run, desk.bench) is False
            desk.heartbeat._beat(own)
        assert desk.held(request.run) is winner
        assert winner.mailbox is not None
        connections.close_all()  # this thread's
        return say("done")

    desk = rig({"a": reply})
    assert desk.advance(desk.start("a")).status == "completed"


@pytest.mark.usefixtures("unclaimed")
def test_a_beat_before_the_first_step_renews_nothing_and_takes_nothing_for_lost(
    rig: MakeBench,
) -> None:
    desk = rig({"a": turns(say("done"))})
    run = desk.start("a")

    def beat() -> None:
        with pool.own() as own:
            desk.heartbeat._beat(own)
        assert not desk.held(run).lost.is_set()

    with at_the_first("before:FrameOpened", beat):
        assert desk.advance(run).status == "completed"


@pytest.mark.usefixtures("unclaimed")
def test_a_signal_between_look_and_first_step_is_taken_up_with_it(rig: MakeBench) -> None:
    desk, run = suspended(rig)

    def pause() -> None:
        with transaction.atomic():
            engine.pause(run=run, actor=ADA, reason="")

    with at_the_first("before:ToolStarted", pause):
        assert desk.advance(run).status == "paused"
    assert row(run).epoch == 2
    assert desk.effects.calls == []


@pytest.mark.usefixtures("unclaimed")
def test_a_first_step_whose_answer_was_cut_off_is_known_and_goes_on(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, run = suspended(rig)
    cut: list[bool] = []

    def commit(connection: Connection, step: steps.Step, *lent: Any, prepare: bool) -> steps.Result:
        result = COMMITTED(connection, step, *lent, prepare=prepare)
        if not cut:
            cut.append(True)
            raise psycopg.OperationalError("cut off")
        return result

    monkeypatch.setattr(steps, "commit", commit)
    assert desk.advance(run).status == "completed"
    assert len(desk.effects.calls) == 1
    assert types(run).count("GateDecided") == 1


def test_whoever_has_nothing_to_write_claims_before_an_effect(rig: MakeBench) -> None:
    def body(request: ToolRequest) -> Outcome:
        desk.heartbeat.drain(30.0)
        return ToolResult(value="done")

    def reply(request: ModelRequest) -> Outcome:
        found = row(request.run)
        assert found.owner is not None
        asked.append(found.epoch)
        connections.close_all()  # this thread's
        return script(request)

    script, asked = turns(ask(("t", {})), say("done")), list[int]()
    desk = rig({"a": reply}, t=FakeTool(body=body))
    assert desk.advance(desk.start("a")).status == "queued"
    other = rig({"a": reply}, t=FakeTool())
    run = Run.objects.get().id
    assert other.advance(run).status == "completed"
    assert asked == [1, row(run).epoch]


def test_time_decides_a_gate_only_for_whoever_has_claimed_the_run(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True, expires_in=0.001))
    run, expire, owners = desk.start("a"), desk.gatekeeper.expire, list[UUID | None]()

    def seen(gate: UUID) -> None:
        owners.append(row(run).owner)
        expire(gate)

    monkeypatch.setattr(desk.gatekeeper, "expire", seen)
    assert desk.advance(run).status == "suspended"
    Run.objects.filter(id=run).update(due_at="2020-01-01T00:00:00Z")
    assert desk.advance(run).status == "completed"
    assert None not in owners
    assert len(owners) == 1


def test_a_worker_that_dies_before_the_first_step_leaves_the_run_to_the_sweeper(
    rig: MakeBench,
) -> None:
    desk = rig({"a": turns(say("done"))})
    run = desk.start("a")
    start = Run.objects.values().get(id=run)
    with at_the_first("before:FrameOpened", die), pytest.raises(_Death):
        advance(run, desk.bench)
    assert Run.objects.values().get(id=run) == start
    sweep()
    assert row(run).pushed
    assert desk.advance(run).status == "completed"
    assert (row(run).epoch, row(run).pushed) == (1, False)
    assert Loss.objects.count() == 0


def test_a_run_that_was_pushed_is_claimed_before_it_is_loaded(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(say("done"))})
    run = desk.start("a")
    sweep()
    with transaction.atomic():
        engine.write(run=run, actor=ADA, text="How is it going?")
    owners: list[UUID | None] = []

    def load(claim: Claim, stored: Stored) -> Loaded:
        owners.append(row(run).owner)
        return LOADED(claim, stored)

    monkeypatch.setattr(advancing, "_load", load)
    assert desk.advance(run).status == "completed"
    assert len(owners) == 1
    assert None not in owners


def test_a_run_that_kills_whoever_loads_it_is_quarantined_though_hints_come_from_everywhere(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.ABEYANCE_POISON_LOSSES = 2
    desk = rig({"a": turns(say("done"))})
    run = desk.start("a")
    monkeypatch.setattr(advancing, "_load", lambda *_: die())
    deaths = 0
    while row(run).status != "quarantined":
        try:
            advance(run, desk.bench, isolated=row(run).isolated)
        except _Death:
            deaths += 1
            assert deaths < 10
        if row(run).owner is not None:
            outlive(run)
        sweep()
        with suppress(RunEnded), transaction.atomic():
            engine.write(run=run, actor=ADA, text="How is it going?")
    # One that left no trace, two at one position, and two alone.
    assert deaths == 5
    assert Loss.objects.filter(run=run).count() == 4
