"""A worker keeps outcomes until Postgres accepts them, and its gates if a signal makes it build the step again."""

import threading
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import DatabaseError, InternalError, connection

from runtime.control import verification
from runtime.control.messages import send_message
from runtime.control.pause import pause as pause_run
from runtime.core.enums import EffectClass, Verdict
from runtime.core.events import Change
from runtime.execution.commit import StepWriter
from runtime.models import Gate, Run
from runtime.ports.access import Expression
from runtime.ports.agents import VersionChange
from runtime.ports.effects import ToolResult
from runtime.store import pool, steps
from runtime.store.pool import Connection
from tests.support.engine import ADA, MakeBench, types
from tests.support.fake_ports import FakeApprovals, FakeTool, ask, say, turns

OLD, NEW = "sha256:a", "sha256:a2"
COMMIT = steps.commit


def test_a_signal_while_a_version_gate_opens_loses_nothing(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"x": 1}), ("t", {"x": 2})), say("done"))}, t=FakeTool(gated=True)
    )
    run = desk.advance(desk.start("a")).id
    first, second = desk.open_gates(run)
    desk.effects.released["a"] = NEW
    change = Change(part="instructions", before="x", after="y", asks=True)
    desk.effects.changes["a", OLD] = VersionChange(agent=desk.effects.agent("a"), changes=(change,))
    desk.decide(first.id, Verdict.APPROVE)

    def decide() -> None:
        desk.decide(second.id, Verdict.APPROVE)
        connection.close()

    waiting = [threading.Thread(target=decide)]

    def commit(writer: StepWriter, *args: object, **kwargs: object) -> object:
        while waiting:
            one = waiting.pop()
            one.start()
            one.join()
        return real(writer, *args, **kwargs)  # type: ignore[arg-type]

    real = StepWriter.commit
    monkeypatch.setattr(StepWriter, "commit", commit)
    desk.advance(run)
    gate = Gate.objects.get(run=run, state="open", kind="version")
    assert gate.id in [snapshot.gate for snapshot in desk.approvals.snapshots]
    assert verification.verify(run).is_consistent


def test_a_step_rebuilt_after_a_signal_closes_its_gates_once(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run, tries = desk.advance(desk.start("a")).id, list[str]()
    desk.decide(desk.open_gates(run)[0].id, Verdict.APPROVE)
    for version in (
        NEW,
        "sha256:a3",
    ):  # the second of them closes the gate that asks about the first
        desk.effects.released["a"] = version
        change = Change(part="instructions", before="x", after="y", asks=True)
        desk.effects.changes["a", OLD] = VersionChange(
            agent=desk.effects.agent("a"), changes=(change,)
        )
        if version == NEW:
            desk.advance(run)

    def pause() -> None:
        pause_run(run=run, actor=ADA, reason="")
        connection.close()

    def close(**_: object) -> None:
        Run.objects.create(id=uuid4(), agent=f"closed {len(tries)}", requester="", input="{}")
        if not tries:
            late = threading.Thread(target=pause)
            late.start()
            late.join()
        tries.append("closed")

    monkeypatch.setattr(desk.approvals, "close", close)
    send_message(run=run, actor=ADA, text="Go on.")
    assert desk.advance(run).status == "paused"
    assert len(tries) == 2
    written = Run.objects.filter(agent__startswith="closed").values_list("agent", flat=True)
    assert list(written) == ["closed 1"], "what the first try wrote was rolled back"


@pytest.mark.parametrize("sqlstate", ["25006", "53100", "57P03", "40001", "55P03"])
def test_an_outcome_waits_for_postgres(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, sqlstate: str
) -> None:
    refused: list[str] = []

    def commit(connection: Connection, step: steps.Step, *lent: Any, prepare: bool) -> steps.Result:
        if step.kind == "ToolReturned" and not refused:
            refused.append(sqlstate)
            raise psycopg.errors.lookup(sqlstate)
        return COMMIT(connection, step, *lent, prepare=prepare)

    monkeypatch.setattr(steps, "commit", commit)
    monkeypatch.setattr("runtime.execution.commit.RETRY_SECONDS", 0.0)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool())
    run = desk.advance(desk.start("a"))
    assert (run.status, refused, len(desk.effects.calls)) == ("completed", [sqlstate], 1)


@pytest.mark.parametrize(
    ("sqlstate", "passing"),
    [("25006", True), ("53300", True), ("08006", True), ("22001", False), ("23505", False)],
)
def test_the_sqlstate_marks_temporary_errors(sqlstate: str, passing: bool) -> None:
    error = psycopg.errors.lookup(sqlstate)()
    assert pool.is_passing(error) is passing
    for wrapping in (InternalError(), DatabaseError()):
        wrapping.__cause__ = error
        assert pool.is_passing(wrapping) is passing


def test_errors_without_a_sqlstate_are_the_connections() -> None:
    assert pool.is_passing(psycopg.OperationalError("gone"))
    assert not pool.is_passing(psycopg.DataError("NUL"))


def test_run_again_waits_for_the_end_of_a_late_start(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intent's COMMIT takes longer than a deadline and a lease, and the call starts after it."""
    late: list[timedelta] = [timedelta(hours=1)]

    def write(writer: StepWriter, records: object, step: steps.Step, tries: object) -> steps.Result:
        result = real(writer, records, step, tries)  # type: ignore[arg-type]
        if step.kind == "ToolStarted" and late:
            writer._started -= late.pop().total_seconds()
        return result

    real = StepWriter._write
    monkeypatch.setattr(StepWriter, "_write", write)
    started: list[datetime] = []

    def body(request: object) -> object:
        (held,) = desk.heartbeat._held.values()
        started.append(held.claim.at + timedelta(hours=1))
        raise ValueError("unknown")

    desk = rig(
        {"a": turns(ask(("t", {})), say("done"))},
        t=FakeTool(effect=EffectClass.WRITE, deadline=3.0, body=body),  # type: ignore[arg-type]
    )
    run = desk.advance(desk.start("a"))
    (doubt,) = [one for one in desk.approvals.snapshots if one.kind == "in_doubt"]
    assert doubt.not_before is not None
    assert doubt.not_before > started[0] + timedelta(seconds=3)
    kinds = ["ToolStarted", "RetryScheduled", "ToolStarted", "OutcomeUnknown", "GateOpened"]
    assert types(run.id)[-5:] == kinds
    assert len(desk.effects.calls) == 1


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What gates open with, of the 7 that each claim reads."""
    found = list[object]()

    real = FakeApprovals.open

    def open_noted(*args: Any, read: object, **kwargs: Any) -> Any:
        found.append(read)
        return real(*args, **kwargs)

    monkeypatch.setattr(FakeApprovals, "open", open_noted)
    query = Expression(sql="7", parameters={})
    monkeypatch.setattr(FakeApprovals, "claim_query", lambda _: query)
    return found


def test_what_a_claim_has_read_is_of_use_for_one_attempt_to_open_gates(
    rig: MakeBench, read: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    again = [True]

    def commit(connection: Connection, step: steps.Step, *lent: Any, prepare: bool) -> steps.Result:
        if step.opened and again:
            again.clear()
            return steps.Result.NEW_SIGNALS
        return COMMIT(connection, step, *lent, prepare=prepare)

    monkeypatch.setattr(steps, "commit", commit)
    assert desk.advance(desk.start("a")).status == "suspended"
    assert read == [7, None]


def test_what_a_claim_has_read_is_too_old_once_signals_were_read_again(
    rig: MakeBench, read: list[object]
) -> None:
    def send(_: object) -> ToolResult:
        send_message(run=runs[0], text="hello", actor=ADA)
        desk.heartbeat.check_signals(runs[0])
        connection.close()  # of the tool's thread
        return ToolResult(value=1)

    desk = rig(
        {"a": turns(ask(("u", {})), ask(("t", {})), say("done"))},
        t=FakeTool(gated=True),
        u=FakeTool(body=send),
    )
    runs = [desk.start("a")]
    assert desk.advance(runs[0]).status == "suspended"
    assert read == [None]
