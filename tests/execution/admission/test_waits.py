"""Retries with waits, expiry, cancelling, and resolving calls in doubt, on real Postgres."""

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from pytest_django import Settings

from runtime.control.cancel import cancel as cancel_run
from runtime.core.call_options import RetryPolicy
from runtime.core.enums import EffectClass, Verdict
from runtime.errors import GateNotOpen, RunEnded
from runtime.models import Gate, Run
from runtime.ports.effects import (
    ModelFailure,
    ModelRequest,
    Outcome,
    ToolFailure,
    ToolRequest,
    ToolResult,
    Unknown,
)
from runtime.store import pool
from tests.execution.test_runner import events, types
from tests.support.engine import ADA, MakeBench, Rig, lose
from tests.support.fake_ports import FakeTool, ToolBody, ask, say, turns

LONG = RetryPolicy(attempts=3, base=3600.0, ceiling=3600.0)


def later(run: UUID) -> None:
    """Let an hour pass for one run, so that all its waits are over."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runtime_run SET due_at = clock_timestamp() WHERE id = %s", [run])


def cancel(run: UUID, reason: str = "enough") -> None:
    cancel_run(run=run, actor=ADA, reason=reason)


def failing(times: int, outcome: Outcome) -> FakeTool:
    """Return a body that fails so often, then succeeds."""

    def body(request: ToolRequest) -> Outcome:
        return outcome if request.attempt <= times else ToolResult(value=request.attempt)

    return FakeTool(body=body)


# Retries


def test_a_call_that_did_not_happen_is_tried_again_in_any_class(rig: MakeBench) -> None:
    tool = failing(2, ToolFailure(error="refused", retryable=True))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "completed"
    assert [call.attempt for call in desk.effects.calls] == [1, 2, 3]


def test_attempts_are_bounded_and_the_model_hears_the_last_error(rig: MakeBench) -> None:
    tool = failing(9, ToolFailure(error="refused", retryable=True))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "completed"
    assert len(desk.effects.calls) == 3
    assert desk.effects.models[-1].messages[-1]["results"][0]["content"] == "refused"


def test_a_long_wait_releases_the_run_until_its_time(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.9)
    tool = failing(1, Unknown(error="cut off"))
    waiting = FakeTool(effect=EffectClass.READ, body=tool.body, retry=LONG)
    desk = rig(
        {"a": turns(ask(("t", {}), ("u", {})), say("done"))},
        t=waiting,
        u=FakeTool(effect=EffectClass.IDEMPOTENT),
    )
    run = desk.advance(desk.start("a"))
    assert (run.status, run.owner) == ("waiting", None)
    assert sorted(call.tool for call in desk.effects.calls) == ["t", "u"]
    (wait,) = [event for event in events(run.id) if event["type"] == "RetryScheduled"]
    assert run.due_at == datetime.fromisoformat(str(wait["until"]))
    assert desk.advance(run.id).status == "waiting"
    assert len(desk.effects.calls) == 2
    monkeypatch.setattr("runtime.execution.commit.StepWriter.clock", lambda self: run.due_at)
    later(run.id)
    assert desk.advance(run.id).status == "completed"
    assert [call.attempt for call in desk.effects.calls if call.tool == "t"] == [1, 2]


def test_a_busy_model_is_called_again_after_its_retry_time(rig: MakeBench) -> None:
    def reply(request: ModelRequest) -> Outcome:
        busy = len(desk.effects.models) < 3
        return ModelFailure(error="429", retryable=True, retry_after=0.01) if busy else say("done")

    desk = rig({"a": reply})
    run = desk.advance(desk.start("a"))
    assert run.status == "completed"
    assert types(run.id).count("RetryScheduled") == 2
    assert types(run.id).count("WaitEnded") == 2


def test_a_permanent_model_failure_fails_the_run_at_once(rig: MakeBench) -> None:
    desk = rig({"a": lambda request: ModelFailure(error="the key is wrong")})
    run = desk.advance(desk.start("a"))
    assert (run.status, run.reason, len(desk.effects.models)) == ("failed", "the key is wrong", 1)


def test_after_five_calls_that_cannot_be_made_the_run_fails(rig: MakeBench) -> None:
    def reply(request: ModelRequest) -> Outcome:
        return ask(("nope", {"n": len(desk.effects.models)}))

    desk = rig({"a": reply})
    run = desk.advance(desk.start("a"))
    assert run.status == "failed"
    assert "5 calls" in str(run.reason)
    assert len(desk.effects.models) == 5


def test_the_same_call_twice_in_one_turn_is_made_once(rig: MakeBench) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"x": 1}), ("t", {"x": 1}), ("t", {"x": 2})), say("done"))},
        t=FakeTool(gated=True),
    )
    run = desk.advance(desk.start("a"))
    assert [gate.call for gate in desk.open_gates(run.id)] == ["c1.0", "c1.2"]


# Expiry


def test_an_expired_gate_denies_its_call(rig: MakeBench) -> None:
    tool = FakeTool(gated=True, expires_in=3600.0)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a"))
    (gate,) = desk.open_gates(run.id)
    assert run.due_at == desk.approvals.snapshots[0].expires_at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.execution.commit.StepWriter.clock", lambda self: run.due_at)
        later(run.id)
        assert desk.advance(run.id).status == "completed"
    assert desk.effects.calls == []
    result = desk.effects.models[-1].messages[-1]["results"][0]
    assert (result["outcome"], result["content"]) == ("denied", "expired without a decision")
    assert result["verdict"] == "expire"
    with pytest.raises((GateNotOpen, RunEnded)):
        desk.decide(gate.id, Verdict.APPROVE)


def test_the_default_expiry_applies_if_a_tool_sets_none(rig: MakeBench, settings: Settings) -> None:
    settings.ABEYANCE_APPROVAL_SECONDS = 100.0
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a"))
    expires_at = desk.approvals.snapshots[0].expires_at
    (gate,) = desk.open_gates(run.id)
    assert expires_at is not None
    assert run.created_at <= expires_at - timedelta(seconds=100) <= gate.opened_at


# Cancelling


def test_a_cancelled_run_closes_its_gates_and_starts_no_call(rig: MakeBench) -> None:
    desk = rig(
        {"a": turns(ask(("t", {"x": 1}), ("t", {"x": 2})), say("done"))}, t=FakeTool(gated=True)
    )
    run = desk.advance(desk.start("a"))
    gates = {gate.id for gate in desk.open_gates(run.id)}
    cancel(run.id, "wrong person")
    assert set(Gate.objects.filter(state="closed").values_list("id", flat=True)) == gates
    assert set(desk.approvals.closed) == gates
    ended = desk.advance(run.id)
    assert (ended.status, ended.reason) == ("cancelled", "wrong person")
    assert types(run.id)[-4:] == ["Cancelling", "GateClosed", "GateClosed", "Cancelled"]
    assert desk.effects.calls == []
    with pytest.raises(RunEnded):
        cancel(run.id)
    with pytest.raises((GateNotOpen, RunEnded)):
        desk.decide(gates.pop(), Verdict.APPROVE)


def test_a_run_that_no_worker_had_yet_is_cancelled(rig: MakeBench) -> None:
    desk = rig({"a": turns(say("done"))})
    run = desk.start("a")
    cancel(run)
    assert desk.advance(run).status == "cancelled"
    assert desk.effects.models == []


def test_a_running_call_of_a_cancelled_run_is_journaled(rig: MakeBench) -> None:
    def slow(request: ToolRequest) -> Outcome:
        _in_a_thread(lambda: cancel(request.run))
        desk.heartbeat.check_signals(request.run)
        return ToolResult(value="done after all")

    desk = rig({"a": turns(ask(("t", {})), say("never said"))}, t=FakeTool(body=slow))
    run = desk.advance(desk.start("a"))
    assert run.status == "cancelled"
    assert "ToolReturned" in types(run.id)
    assert len(desk.effects.models) == 1


def test_an_approval_before_the_cancellation_takes_no_effect(rig: MakeBench) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a"))
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
    cancel(run.id)
    assert desk.advance(run.id).status == "cancelled"
    assert desk.effects.calls == []


# In doubt


@pytest.fixture
def doubtful(rig: MakeBench) -> tuple[Rig, UUID, UUID]:
    """A write that was started and lost; its run and gate."""
    tool = failing(1, Unknown(error="read timed out"))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a")).id
    (gate,) = desk.open_gates(run)
    return desk, run, gate.id


def test_an_in_doubt_gate_has_a_snapshot_and_an_earliest_repeat(
    doubtful: tuple[Rig, UUID, UUID],
) -> None:
    desk, run, gate = doubtful
    (snapshot,) = desk.approvals.snapshots
    assert (snapshot.gate, snapshot.kind) == (gate, "in_doubt")
    (started,) = [event for event in events(run) if event["type"] == "ToolStarted"]
    waited = snapshot.not_before
    assert waited is not None
    assert (waited - datetime.fromisoformat(str(started["at"]))).total_seconds() == 40.0


def test_it_happened_gives_the_model_the_reported_result(doubtful: tuple[Rig, UUID, UUID]) -> None:
    desk, run, gate = doubtful
    desk.decide(gate, Verdict.HAPPENED, result={"message_id": "<x>"})
    assert desk.advance(run).status == "completed"
    assert len(desk.effects.calls) == 1
    assert desk.effects.models[-1].messages[-1]["results"][0] == {
        "call": "c1.0",
        "tool": "t",
        "outcome": "returned",
        "content": {"message_id": "<x>"},
        "reported_by": "bea",
    }


def test_run_it_again_starts_it_exactly_once_more(doubtful: tuple[Rig, UUID, UUID]) -> None:
    desk, run, gate = doubtful
    desk.decide(gate, Verdict.RUN_AGAIN)
    assert desk.advance(run).status == "completed"
    assert [call.attempt for call in desk.effects.calls] == [1, 2]


def test_give_up_fails_the_call_with_the_reason(doubtful: tuple[Rig, UUID, UUID]) -> None:
    desk, run, gate = doubtful
    desk.decide(gate, Verdict.GIVE_UP, "the server's log has nothing")
    assert desk.advance(run).status == "completed"
    result = desk.effects.models[-1].messages[-1]["results"][0]
    assert (result["outcome"], result["content"]) == ("failed", "the server's log has nothing")
    assert result["verdict"] == "give_up"


# Genuine decisions


def test_an_unsigned_decision_parks_the_run(rig: MakeBench) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a"))
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.DENY, "no")
    desk.approvals.forged = True
    assert desk.advance(run.id).status == "quarantined"


def test_losing_permission_after_approving_opens_a_new_gate(rig: MakeBench) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a"))
    (first,) = desk.open_gates(run.id)
    desk.decide(first.id, Verdict.APPROVE)
    desk.approvals.void = True
    assert desk.advance(run.id).status == "suspended"
    (second,) = desk.open_gates(run.id)
    assert second.id != first.id
    desk.approvals.void = False
    desk.decide(second.id, Verdict.APPROVE)
    assert desk.advance(run.id).status == "completed"
    assert len(desk.effects.calls) == 1


def test_another_attempt_needs_an_approval_that_still_holds(rig: MakeBench) -> None:
    def body(request: ToolRequest) -> Outcome:
        desk.approvals.void = True
        return ToolFailure(error="refused", retryable=True)

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True, body=body))
    run = desk.advance(desk.start("a"))
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
    assert desk.advance(run.id).status == "suspended"
    assert len(desk.effects.calls) == 1
    assert len(desk.open_gates(run.id)) == 1


# Transactional tools


def _insert(request: ToolRequest) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO desk_ledger VALUES (%s, %s)", [request.key, request.attempt])


@pytest.fixture
def ledger(rig: MakeBench) -> object:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE desk_ledger (key text, attempt integer)")
    yield None
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE desk_ledger")


def _rows() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT attempt FROM desk_ledger ORDER BY attempt")
        return [row[0] for row in cursor.fetchall()]


@pytest.mark.usefixtures("ledger")
def test_a_transactional_tools_writes_commit_with_its_result(rig: MakeBench) -> None:
    def body(request: ToolRequest) -> Outcome:
        _insert(request)
        return ToolResult(value="kept")

    tool = FakeTool(effect=EffectClass.TRANSACTIONAL, body=body)
    desk = rig({"a": turns(ask(("t", {"n": 1}), ("t", {"n": 2})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a"))
    assert run.status == "completed"
    assert _rows() == [1, 1]
    assert types(run.id).count("ToolReturned") == 2


@pytest.mark.usefixtures("ledger")
def test_a_failed_transactional_tool_rolls_back_and_retries(rig: MakeBench) -> None:
    def body(request: ToolRequest) -> Outcome:
        _insert(request)
        return Unknown(error="broke") if request.attempt == 1 else ToolResult(value="kept")

    tool = FakeTool(effect=EffectClass.TRANSACTIONAL, body=body)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "completed"
    assert _rows() == [2]


@pytest.mark.usefixtures("ledger")
def test_a_transactional_tool_of_a_replaced_worker_rolls_back(
    rig: MakeBench, settings: Settings
) -> None:
    def body(request: ToolRequest) -> Outcome:
        _insert(request)
        if request.attempt == 1:
            _in_a_thread(lambda: Run.objects.filter(id=request.run).update(epoch=99))
        return ToolResult(value="kept")

    tool = FakeTool(effect=EffectClass.TRANSACTIONAL, body=body)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.start("a")
    assert desk.advance(run).status == "running"
    assert _rows() == []
    settings.ABEYANCE_LEASE_SECONDS = 1.0
    lose(run)
    assert desk.advance(run).status == "completed"
    assert _rows() == [2]


@pytest.mark.usefixtures("ledger", "short_lease")
def test_an_overrunning_transactional_tool_leaves_one_row(rig: MakeBench) -> None:
    """The first worker's tool goes on long after another worker has made the call anew and has ended the run."""
    written, go_on = threading.Event(), threading.Event()

    def late(request: ToolRequest) -> Outcome:
        _insert(request)
        written.set()
        assert go_on.wait(60)
        threading.Event().wait(request.deadline)  # longer than it may take
        return ToolResult(value="too late")

    def in_time(request: ToolRequest) -> Outcome:
        _insert(request)
        return ToolResult(value="kept")

    def worker(body: ToolBody) -> Rig:
        tool = FakeTool(effect=EffectClass.TRANSACTIONAL, deadline=2.0, body=body)
        return rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)

    slow, quick = worker(late), worker(in_time)
    run = slow.start("a")
    first = threading.Thread(target=_closing(lambda: slow.advance(run)))
    first.start()
    assert written.wait(60)
    slow.heartbeat.stop()  # its lease is not renewed any more
    lose(run)
    assert quick.advance(run).status == "completed"
    assert _rows() == [2]
    go_on.set()
    first.join(60)
    assert not first.is_alive()
    slow.context.effect_pool.close()
    assert _rows() == [2]
    assert [event["result"] for event in events(run) if event["type"] == "ToolReturned"] == ["kept"]


@pytest.mark.usefixtures("ledger")
def test_a_transactional_tool_that_hangs_frees_its_run(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.execution.effects.pool.DEADLINE_SLACK", 0.0)
    go_on = threading.Event()

    def body(request: ToolRequest) -> Outcome:
        _insert(request)
        go_on.wait(60)
        return ToolResult(value="too late")

    once = RetryPolicy(attempts=1, base=0.0, ceiling=0.0)
    tool = FakeTool(effect=EffectClass.TRANSACTIONAL, deadline=1.0, body=body, retry=once)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a"))
    assert not go_on.is_set()
    assert (run.status, _rows()) == ("completed", [])
    (told,) = desk.effects.models[-1].messages[-1]["results"]
    assert told["content"] == "it did not end within 1 s, and was rolled back"
    with pool.own() as own, own.transaction():
        own.execute("SET LOCAL lock_timeout = '5s'")
        own.execute("LOCK TABLE desk_ledger")  # the tool's transaction and its locks are gone
    go_on.set()
    desk.context.effect_pool.close()
    assert _rows() == []
    assert "ToolReturned" not in types(run.id)


@pytest.mark.usefixtures("ledger")
def test_a_result_after_the_release_of_its_run_is_rolled_back(rig: MakeBench) -> None:
    left, ended = threading.Event(), threading.Event()

    def body(request: ToolRequest) -> Outcome:
        _insert(request)
        held = desk.held(request.run)
        held.lost.set()
        held.wake()
        left.wait(60)
        ended.set()
        return ToolResult(value="too late")

    tool = FakeTool(effect=EffectClass.TRANSACTIONAL, body=body)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "running"
    left.set()
    desk.context.effect_pool.close()  # waits for the tool's thread, which must not wait for ever
    assert ended.is_set()
    assert _rows() == []


def _in_a_thread(act: Callable[[], object]) -> None:
    """Call it in another thread, on a connection of its own."""
    thread = threading.Thread(target=_closing(act))
    thread.start()
    thread.join()


def _closing(act: Callable[[], object]) -> Callable[[], None]:
    def done() -> None:
        try:
            act()
        finally:
            connection.close()

    return done


def test_forged_signals_park_the_run(rig: MakeBench) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a"))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runtime_signal (run_id, kind, body) VALUES (%s, 'gate_decided', %s)",
            [run.id, json.dumps({"gate": "x"})],
        )
        cursor.execute("UPDATE runtime_run SET mailbox = 9, due_at = clock_timestamp()")
    assert desk.advance(run.id).status == "quarantined"
