"""A runner on real Postgres: gates, denial, recovery, tampering; and the commits of its steps."""

import functools
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import DatabaseError, DataError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from runtime.control import verification
from runtime.control.interventions import send_message
from runtime.core.run.events import AgentChange
from runtime.core.values.enums import EffectClass, Verdict
from runtime.execution.commit import StepWriter
from runtime.models import Gate, Run, Signal
from runtime.ports.agents import CallInfo, VersionChange
from runtime.ports.approvals import PolicyFacts, Ruling, StatementPart
from runtime.ports.effects import ModelFailure, Outcome, ToolFailure, ToolRequest, ToolResult
from runtime.store import pool, steps
from tests.execution.conftest import Ledger
from tests.support.calls import around
from tests.support.engine import ADA, MakeBench, Rig, at_failpoint, pause, types
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.threads import aside, in_thread

IDEMPOTENT = FakeTool(effect=EffectClass.IDEMPOTENT)
GATED = FakeTool(gated=True)


def test_gates_of_one_turn_open_together_and_are_decided_apart(rig: MakeBench) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"n": 1}), ("t", {"n": 2}), ("u", {"n": 3})), say("done"))},
        t=GATED,
        u=IDEMPOTENT,
    )
    run = desk.advance(desk.start("a"))
    assert (run.status, run.owner) == ("suspended", None)
    gates = [gate.id for gate in desk.open_gates(run.id)]
    assert [call.tool for call in desk.effects.calls] == ["u"]
    desk.decide(gates[0], Verdict.APPROVE)
    assert desk.advance(run.id).status == "suspended"
    assert [call.args["n"] for call in desk.effects.calls] == [3, 1]
    assert Gate.objects.get(id=gates[0]).state == "effective"
    assert not Signal.objects.exists()
    desk.decide(gates[1], Verdict.DENY, "not this one")
    assert desk.advance(run.id).status == "completed"
    assert [call.args["n"] for call in desk.effects.calls] == [3, 1]
    denied = {"call": "c1.1", "tool": "t", "outcome": "denied", "content": "not this one"}
    assert desk.heard(1) == denied


@pytest.mark.parametrize(
    ("tool", "outcome", "told"),
    [
        ("low", "failed", "broke"),
        ("nope", "refused", "there is no tool nope"),
        ("says_no", "failed", "username taken"),
    ],
)
def test_the_model_is_told_of_a_call_that_came_to_nothing(
    rig: MakeBench, tool: str, outcome: str, told: str
) -> None:
    desk = rig(
        {"a": turns(ask((tool, {})), say("ok")), "low": turns(ModelFailure(error="broke"))},
        says_no=FakeTool(body=lambda request: ToolFailure(error="username taken")),
    )
    run = desk.advance(desk.start("a"))
    assert (run.status, run.owner, run.due_at) == ("completed", None, None)
    assert desk.open_gates(run.id) == []
    assert (desk.heard()["tool"], desk.heard()["outcome"]) == (tool, outcome)
    assert told in str(desk.heard()["content"])


def test_a_decision_that_comes_while_a_sibling_runs_is_not_lost(rig: MakeBench) -> None:
    def slow(request: ToolRequest) -> Outcome:
        aside(lambda: desk.decide(desk.open_gates(request.run)[0].id, Verdict.APPROVE))
        return ToolResult(value=1)

    agents = {"a": turns(ask(("t", {}), ("slow", {})), say("done"))}
    desk = rig(agents, t=GATED, slow=FakeTool(body=slow))
    assert desk.advance(desk.start("a")).status == "completed"


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.DENY])
def test_a_decision_that_is_not_confirmed_parks_the_run(rig: MakeBench, verdict: Verdict) -> None:
    desk = rig({"a": turns(ask(("t", {"x": 1}), ("t", {"x": 2})), say("done"))}, t=GATED)
    run = desk.advance(desk.start("a"))
    desk.approvals.forged = True
    assert desk.answer(run.id, verdict, "no").status == "quarantined"
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.DENY, "no")
    assert Run.objects.get(id=run.id).due_at is None
    assert desk.effects.calls == []


@pytest.mark.parametrize("change", ["the tool", "the decider's right"])
def test_an_approval_that_no_longer_holds_opens_a_new_gate(rig: MakeBench, change: str) -> None:
    desk = rig({"a": turns(ask(("t", {"x": 1})), say("done"))}, t=GATED)
    run = desk.advance(desk.start("a"))
    (first,) = desk.open_gates(run.id)
    if change == "the tool":
        desk.effects.tools["t"] = FakeTool(gated=True, effect=EffectClass.IDEMPOTENT)
    else:
        desk.approvals.void = True
    assert desk.answer(run.id).status == "suspended"
    (second,) = desk.open_gates(run.id)
    assert second.id != first.id
    assert desk.effects.calls == []
    desk.approvals.void = False
    assert desk.answer(run.id).status == "completed"
    assert len(desk.effects.calls) == 1


def test_an_approved_delegation_is_checked_again_before_its_frame_opens(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ask(("b", {"x": 1})), say("done")), "b": turns(say("sub"))})

    def judge(info: CallInfo, facts: PolicyFacts) -> Ruling:
        return Ruling(gated=info.delegate is not None)

    monkeypatch.setattr(desk.approvals, "judge", judge)
    run = desk.advance(desk.start("a"))
    (first,) = desk.open_gates(run.id)
    desk.approvals.void = True
    assert desk.answer(run.id).status == "suspended"
    (second,) = desk.open_gates(run.id)
    assert second.id != first.id
    assert [one.agent for one in desk.effects.models] == ["a"]


@pytest.mark.parametrize("error", [ZeroDivisionError(), DataError("value too long")])
def test_a_fault_of_ours_is_an_alarm_and_backs_off_unless_it_lasts(
    gated: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    run = gated.start("a")
    with monkeypatch.context() as patch:
        patch.setattr(gated.approvals, "open", broken)
        left = gated.advance(run)
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    if isinstance(error, DataError):
        assert (left.status, left.owner, left.due_at) == ("quarantined", None, None)
        assert "cannot be written: value too long" in str(left.reason)
        return
    assert (left.status, left.owner) == ("running", None)
    assert left.due_at is not None
    Run.objects.filter(id=run).update(due_at="2020-01-01T00:00:00Z")
    assert gated.advance(run).status == "suspended"


def test_a_decision_survives_an_outage(gated: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker once lost such a decision: its verification failed after the signal counted as consumed."""
    run = gated.start("a")
    gated.advance(run)
    (gate,) = gated.open_gates(run)
    gated.decide(gate.id, Verdict.APPROVE)
    failures = [psycopg.OperationalError("gone")]

    def fail_once(**_: object) -> None:
        if failures:
            raise failures.pop()

    around(monkeypatch, gated.approvals, "verify_decision", before=fail_once)
    assert gated.advance(run).status == "completed"


def test_the_first_step_consumes_a_signal_after_the_claim(gated: Rig) -> None:
    run = gated.advance(gated.start("a")).id
    gated.decide(gated.open_gates(run)[0].id, Verdict.APPROVE)
    with at_failpoint("before:ToolStarted", lambda: pause(run)):
        assert gated.advance(run).status == "paused"
    assert (Run.objects.get(id=run).epoch, gated.effects.calls) == (2, [])


# Commits: an outcome waits for Postgres, and a signal makes the worker build its step again


OLD, NEW = "sha256:a", "sha256:a2"
COMMIT = steps.commit


def release(desk: Rig, version: str) -> None:
    """Give the worker another version of its agent, which people are asked about."""
    desk.effects.released["a"] = version
    change = AgentChange(part="instructions", before="x", after="y", asks=True)
    desk.effects.changes["a", OLD] = VersionChange(agent=desk.effects.agent("a"), changes=(change,))


def test_signals_at_a_version_gate_count(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"x": 1}), ("t", {"x": 2})), say("done"))}, t=FakeTool(gated=True)
    )
    run = desk.advance(desk.start("a")).id
    first, second = desk.open_gates(run)
    release(desk, NEW)
    desk.decide(first.id, Verdict.APPROVE)
    waiting = [second.id]

    def approve(*_: object, **__: object) -> None:
        while waiting:
            aside(functools.partial(desk.decide, waiting.pop(), Verdict.APPROVE))

    around(monkeypatch, StepWriter, "commit", before=approve)
    desk.advance(run)
    gate = Gate.objects.get(run=run, state="open", kind="version")
    assert gate.id in [snapshot.gate for snapshot in desk.approvals.requests]
    assert verification.verify(run).is_consistent


def test_a_rebuilt_step_closes_its_gates_once(gated: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    run, tries = gated.advance(gated.start("a")).id, list[str]()
    gated.decide(gated.open_gates(run)[0].id, Verdict.APPROVE)
    release(gated, NEW)
    gated.advance(run)
    release(gated, "sha256:a3")  # which closes the gate that asks about the one before

    def close(**_: object) -> None:
        Run.objects.create(id=uuid4(), agent=f"closed {len(tries)}", requester="", input="{}")
        if not tries:
            aside(lambda: pause(run))
        tries.append("closed")

    monkeypatch.setattr(gated.approvals, "close", close)
    send_message(run=run, actor=ADA, text="Go on.")
    assert gated.advance(run).status == "paused"
    assert len(tries) == 2
    written = Run.objects.filter(agent__startswith="closed").values_list("agent", flat=True)
    assert list(written) == ["closed 1"], "what the first try wrote was rolled back"


@pytest.mark.parametrize("sqlstate", ["25006", "53100", "57P03", "40001"])
def test_an_outcome_waits(rig: MakeBench, monkeypatch: pytest.MonkeyPatch, sqlstate: str) -> None:
    refused: list[str] = []

    def refuse(_: object, step: steps.Step, *__: object) -> None:
        if step.kind == "ToolReturned" and not refused:
            refused.append(sqlstate)
            raise psycopg.errors.lookup(sqlstate)

    around(monkeypatch, steps, "commit", before=refuse)
    monkeypatch.setattr("runtime.execution.worker.RETRY_SECONDS", 0.0)
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
    wrapping = DatabaseError()
    wrapping.__cause__ = error
    assert pool.is_passing(wrapping) is passing
    assert pool.is_passing(psycopg.OperationalError("gone, without a state"))


def test_run_again_waits_for_a_late_start(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The intent's COMMIT takes longer than a deadline and a lease, and the call starts after it."""
    late: list[timedelta] = [timedelta(hours=1)]

    def delay(_: object, writer: StepWriter, __: object, step: steps.Step, tries: object) -> None:
        if step.kind == "ToolStarted" and late:
            writer._started -= late.pop().total_seconds()

    around(monkeypatch, StepWriter, "_write", after=delay)
    started: list[datetime] = []

    def body(request: object) -> object:
        (held,) = desk.heartbeat._claimed.values()
        started.append(held.claim.at + timedelta(hours=1))
        raise ValueError("unknown")

    desk = rig(
        {"a": turns(ask(("t", {})), say("done"))},
        t=FakeTool(effect=EffectClass.WRITE, deadline=3.0, body=body),  # type: ignore[arg-type]
    )
    run = desk.advance(desk.start("a"))
    (doubt,) = [one for one in desk.approvals.requests if one.kind == "in_doubt"]
    assert doubt.not_before is not None
    assert doubt.not_before > started[0] + timedelta(seconds=3)
    kinds = ["ToolStarted", "RetryScheduled", "ToolStarted", "OutcomeUnknown", "GateOpened"]
    assert types(run.id)[-5:] == kinds
    assert len(desk.effects.calls) == 1


# Commits whose answer was cut off

BLOCKED = """
    SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))
"""


class Cut:
    """Cuts off the answer to a thread's next COMMIT; `late` lets it end only once a worker waits for it."""

    def __init__(self, late: bool) -> None:
        self.late = late
        self.done = threading.Event()
        self._armed: int | None = None

    def arm(self) -> None:
        if not self.done.is_set():
            self._armed = threading.get_ident()

    def commit(self, wrapper: BaseDatabaseWrapper, real: Callable[[Any], None]) -> None:
        if threading.get_ident() != self._armed or self.done.is_set():
            real(wrapper)
            return
        other, wrapper.connection = wrapper.connection, None
        self.end(other)
        raise OperationalError("the connection was lost")

    def end(self, other: psycopg.Connection[Any]) -> None:
        self.done.set()

        def commit() -> None:
            with pool.open_own() as own:
                while self.late and own.execute(BLOCKED, (other.info.backend_pid,)).fetchone() == (
                    0,
                ):
                    pass
            other.commit()
            other.close()

        thread = in_thread(commit)
        if not self.late:
            thread.join()


@pytest.fixture(params=[False, True], ids=["committed", "under way"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cut:
    found, real = Cut(request.param), BaseDatabaseWrapper._commit  # type: ignore[attr-defined]
    monkeypatch.setattr(BaseDatabaseWrapper, "_commit", lambda self: found.commit(self, real))
    return found


def test_a_cut_commit_opens_one_gate(gated: Rig, cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    run = gated.start("a")

    def commit(connection: Any, step: steps.Step, *lent: Any) -> steps.CommitResult:
        if not step.opened_gates or cut.done.is_set():
            return COMMIT(connection, step, *lent)
        other = psycopg.connect(connection.info.dsn, password=connection.info.password)
        COMMIT(other, step, *lent)
        cut.end(other)
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(steps, "commit", commit)
    assert gated.advance(run).status == "suspended"
    assert cut.done.is_set()
    assert [one.gate for one in gated.approvals.requests] == [
        one.id for one in gated.open_gates(run)
    ]
    assert types(run)[-2:] == ["ModelReplied", "GateOpened"]
    assert len(gated.effects.models) == 1


def test_an_unknown_commit_keeps_its_writes_once(rig: MakeBench, cut: Cut, ledger: Ledger) -> None:
    def body(request: ToolRequest) -> Outcome:
        cut.arm()
        return ledger.keep(request)

    tool = FakeTool(effect=EffectClass.TRANSACTIONAL, body=body)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a"))
    assert cut.done.is_set()
    assert run.status == "completed"
    assert (ledger.attempts(), len(desk.effects.calls)) == ([1], 1)
    assert types(run.id)[-4:] == ["ToolStarted", "ToolReturned", "ModelReplied", "Completed"]


def test_a_gate_is_rebuilt_after_a_change(gated: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real, taken = gated.start("a"), gated.approvals.open, list[StatementPart]()
    gated.advance(gated.start("a"))  # whose gate is there already

    def overtaken(*args: Any, **kwargs: Any) -> tuple[StatementPart, ...]:
        real(*args, **kwargs)
        sql = "INSERT INTO runtime_gate SELECT g.* FROM run, runtime_gate g"
        if taken:
            return ()
        taken.append(
            StatementPart(name="lent", sql=sql, parameters={}, overtaken="runtime_gate_pkey")
        )
        return tuple(taken)

    monkeypatch.setattr(gated.approvals, "open", overtaken)
    assert gated.advance(run).status == "suspended"
    assert len(taken) == len(gated.open_gates(run)) == 1
    assert types(run)[-2:] == ["ModelReplied", "GateOpened"]
