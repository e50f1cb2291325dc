"""A write that ends after its worker has lost the run: the outcome settles the call in doubt, or is evidence."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection, transaction
from django.utils import timezone

from runtime.control import verification
from runtime.control.cancel import cancel
from runtime.control.settle import settle, undo
from runtime.core.enums import Decision, Verdict
from runtime.core.limits import KEPT_INLINE
from runtime.execution.claim import advance
from runtime.execution.effects import pool as effect_pool
from runtime.models import Gate, LateOutcome, Run
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult
from runtime.store import pool, runs
from runtime.store.tables import late_outcomes
from runtime.upkeep import retention
from tests.execution.test_runner import events, types
from tests.support.engine import ADA, LONG, MakeBench, Rig, lose
from tests.support.fake_ports import FakeTool, ask, say, turns

SENT = ToolResult(value={"message_id": "m-1"})
Desks = tuple[Rig, Rig]


def taken_away(run: UUID) -> None:
    """Act like another worker that claimed the run and died."""
    with pool.own() as own:
        own.execute(
            """
            UPDATE runtime_run SET epoch = epoch + 1, owner = %s WHERE id = %s
            """,
            (uuid4(), run),
        )
    lose(run)


class Slow:
    """A write that is under way until the test lets it end."""

    def __init__(self) -> None:
        self.begun, self.ends = threading.Event(), threading.Event()
        self.outcome: Outcome = SENT

    def __call__(self, request: ToolRequest) -> Outcome:
        self.begun.set()
        assert self.ends.wait(LONG)
        return self.outcome


@pytest.fixture
def slow() -> Iterator[Slow]:
    one = Slow()
    yield one
    one.ends.set()


@pytest.fixture
def desks(rig: MakeBench, slow: Slow) -> Desks:
    """Two workers; the write of the first is slow."""
    agents = {"a": turns(ask(("t", {})), say("done"))}
    tools = {"t": FakeTool(), "asked": FakeTool(gated=True)}
    return rig(agents, t=FakeTool(body=slow)), rig(agents, **tools)


@pytest.fixture
def lost(desks: Desks, slow: Slow) -> Callable[[], UUID]:
    """A run that its first worker has lost, with an in-doubt gate opened by the second."""
    return lambda: losing(desks, slow)


def losing(desks: Desks, slow: Slow) -> UUID:
    desk, other = desks
    run = desk.start("a")

    def work() -> None:
        advance(run, desk.context)
        connection.close()

    worker = threading.Thread(target=work)
    worker.start()
    assert slow.begun.wait(LONG)
    taken_away(run)
    held = desk.held(run)  # is told now, and not with the next heartbeat
    held.lost.set()
    held.wake()
    assert other.advance(run).status == "suspended"
    worker.join(LONG)
    assert not worker.is_alive()
    return run


def ended(desks: Desks, slow: Slow) -> None:
    """Let the write end, and wait for its worker to record the outcome."""
    slow.ends.set()
    desks[0].context.effect_pool.close()


def told(desk: Rig) -> dict[str, Any]:
    """Return the last message to the model."""
    result: dict[str, Any] = desk.effects.models[-1].messages[-1]["results"][0]
    return result


def test_a_late_result_settles_the_call(desks: Desks, slow: Slow, lost: Callable[[], UUID]) -> None:
    desks[1].effects.agents["a"] = turns(ask(("t", {})), ask(("asked", {})))
    run = lost()
    (gate,) = desks[1].open_gates(run)
    ended(desks, slow)
    assert desks[1].advance(run).status == "suspended"  # at the gate of its next call
    assert told(desks[1]) == {
        "call": "c1.0",
        "tool": "t",
        "outcome": "returned",
        "content": {"message_id": "m-1"},
    }
    assert (Gate.objects.get(id=gate.id).state, desks[1].approvals.closed) == ("closed", [gate.id])
    (arrived,) = [event for event in events(run) if event["type"] == "OutcomeArrived"]
    assert arrived["gate"] == str(gate.id)
    assert "GateDecided" not in types(run)
    assert (len(desks[0].effects.calls), desks[1].effects.calls) == (1, [])
    assert verification.verify(run).findings == ()


def test_a_late_error_settles_it_too(desks: Desks, slow: Slow, lost: Callable[[], UUID]) -> None:
    slow.outcome = ToolFailure(error="no such mailbox")
    run = lost()
    ended(desks, slow)
    assert desks[1].advance(run).status == "completed"
    assert (told(desks[1])["outcome"], told(desks[1])["content"]) == ("failed", "no such mailbox")


def test_an_outcome_after_the_deadline_settles_the_doubt(
    rig: MakeBench, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effect_pool, "DEADLINE_SLACK", 0.05)
    tool = FakeTool(deadline=0.05, body=slow)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a"))
    assert run.status == "suspended"
    ended((desk, desk), slow)
    assert desk.advance(run.id).status == "completed"
    assert told(desk)["content"] == {"message_id": "m-1"}


def test_an_outcome_that_came_and_was_not_written_is_handed_in(rig: MakeBench) -> None:
    """The worker receives the outcome and the loss of the run at the same moment."""

    def takes_it_away(request: ToolRequest) -> Outcome:
        taken_away(request.run)
        return SENT

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(body=takes_it_away))
    run = desk.start("a")
    desk.advance_once(run)
    assert LateOutcome.objects.count() == 1
    assert desk.advance(run).status == "completed"
    assert types(run).count("ToolStarted") == 1
    assert "GateOpened" not in types(run)  # the next worker read the outcome first


def test_an_earlier_decision_of_a_person_stays(
    desks: Desks, slow: Slow, lost: Callable[[], UUID]
) -> None:
    run = lost()
    (gate,) = desks[1].open_gates(run)
    desks[1].decide(gate.id, Verdict.GIVE_UP, "nothing in the log")
    ended(desks, slow)
    assert desks[1].advance(run).status == "completed"
    assert told(desks[1])["content"] == "nothing in the log"
    assert "OutcomeArrived" not in types(run)
    assert LateOutcome.objects.filter(run=run).count() == 1


def test_a_decision_that_can_be_undone_stays(
    desks: Desks, slow: Slow, lost: Callable[[], UUID]
) -> None:
    run = lost()
    (gate,) = desks[1].open_gates(run)
    decision = Decision(verdict=Verdict.GIVE_UP, by="bea", reason="nothing in the log")
    with transaction.atomic():
        settle(gate=gate.id, decision=decision, effective_at=timezone.now() + timedelta(hours=1))
    ended(desks, slow)
    assert desks[1].advance(run).status == "suspended"
    with transaction.atomic():
        undo(gate=gate.id)
    assert desks[1].advance(run).status == "completed"
    assert told(desks[1])["content"] == {"message_id": "m-1"}


def test_a_decision_in_the_same_moment_stays(
    desks: Desks, slow: Slow, lost: Callable[[], UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person decides after the worker has read its signals and before it journals the late outcome."""
    run = lost()
    (gate,) = desks[1].open_gates(run)
    ended(desks, slow)
    found, decided = late_outcomes.of, threading.Event()

    def decides(own: pool.Connection, run: UUID) -> late_outcomes.Found:
        if not decided.is_set():
            decided.set()
            thread = threading.Thread(target=decide)
            thread.start()
            thread.join(LONG)
        return found(own, run)

    def decide() -> None:
        desks[1].decide(gate.id, Verdict.GIVE_UP, "nothing in the log")
        connection.close()

    monkeypatch.setattr(late_outcomes, "of", decides)
    assert desks[1].advance(run).status == "completed"
    assert told(desks[1])["content"] == "nothing in the log"


def test_the_outcome_of_an_earlier_attempt_settles_nothing(
    desks: Desks, slow: Slow, lost: Callable[[], UUID]
) -> None:
    run = lost()
    (gate,) = desks[1].open_gates(run)
    desks[1].effects.tools["t"] = FakeTool(body=raising)
    desks[1].decide(gate.id, Verdict.RUN_AGAIN)
    assert desks[1].advance(run).status == "suspended"  # the second attempt is in doubt
    ended(desks, slow)
    assert desks[1].advance(run).status == "suspended"
    assert "OutcomeArrived" not in types(run)


def raising(request: ToolRequest) -> Outcome:
    raise RuntimeError("cut off")


def test_a_changed_row_settles_nothing(desks: Desks, slow: Slow, lost: Callable[[], UUID]) -> None:
    run = lost()
    ended(desks, slow)
    with pool.own() as own:
        own.execute("ALTER TABLE runtime_lateoutcome DISABLE TRIGGER USER")
        own.execute("UPDATE runtime_lateoutcome SET body = replace(body, 'm-1', 'm-2')")
        own.execute("ALTER TABLE runtime_lateoutcome ENABLE TRIGGER USER")
    assert desks[1].advance(run).status == "suspended"
    assert [one.subject for one in verification.verify(run).findings] == ["late outcome"]


def test_no_part_of_a_row_can_be_changed(desks: Desks) -> None:
    run = desks[0].start("a")
    at = Run.objects.get(id=run).created_at
    with pool.own() as own, own.transaction(force_rollback=True):
        own.execute("ALTER TABLE runtime_lateoutcome DISABLE TRIGGER USER")
        assert late_outcomes.insert(own, said(run, at))
        assert late_outcomes.of(own, run).forged == ()
        for change in (
            "frame = '0.c1.1'",
            "call = 'c1.1'",
            "attempt = 2",
            "started_at = started_at + interval '1 second'",
            "worker = gen_random_uuid()",
            "at = at + interval '1 second'",
            "body = replace(body, 'of then', 'of now')",
        ):
            with own.transaction(force_rollback=True):
                own.execute(f"UPDATE runtime_lateoutcome SET {change}")
                assert len(late_outcomes.of(own, run).forged) == 1, change


def said(run: UUID, at: datetime) -> late_outcomes.LateOutcome:
    """A late outcome of the first attempt at the first call, with an intent of that time."""
    return late_outcomes.LateOutcome(
        run=run,
        frame="0",
        call="c1.0",
        attempt=1,
        started_at=at,
        worker=uuid4(),
        at=at,
        outcome="returned",
        result="of then",
    )


def test_the_same_attempt_of_another_time_settles_nothing(
    desks: Desks, slow: Slow, lost: Callable[[], UUID]
) -> None:
    """After a restore the attempt has the same number and another intent, or the other way round."""
    run = lost()
    (started,) = [event for event in events(run) if event["type"] == "ToolStarted"]
    with pool.own() as own:
        assert late_outcomes.insert(own, said(run, Run.objects.get(id=run).created_at))
        at = datetime.fromisoformat(str(started["at"]))
        assert late_outcomes.insert(own, replace(said(run, at), attempt=2))
    ring(run)
    assert desks[1].advance(run).status == "suspended"


def ring(run: UUID) -> None:
    with transaction.atomic():
        runs.notify_signal(pool.djangos(), run)


def test_an_attempt_has_one_late_outcome(
    desks: Desks, slow: Slow, lost: Callable[[], UUID]
) -> None:
    run = lost()
    ended(desks, slow)
    mailbox = Run.objects.get(id=run).mailbox
    with pool.own() as own:
        (late,) = late_outcomes.of(own, run).genuine
        assert late_outcomes.insert(own, late) is False
    assert Run.objects.get(id=run).mailbox == mailbox


def test_a_late_outcome_of_an_ended_run_is_evidence(
    desks: Desks, slow: Slow, lost: Callable[[], UUID]
) -> None:
    run = lost()
    cancel(run=run, actor=ADA, reason="enough")
    assert desks[1].advance(run).status == "cancelled"
    ended(desks, slow)
    assert LateOutcome.objects.filter(run=run).count() == 1
    assert verification.verify(run).findings == ()


def test_rows_go_with_the_payloads_and_not_before(
    desks: Desks, slow: Slow, lost: Callable[[], UUID]
) -> None:
    run = lost()
    ended(desks, slow)
    desks[1].advance(run)
    with pool.own() as own:
        for statement in (
            "UPDATE runtime_lateoutcome SET frame = ''",
            "DELETE FROM runtime_lateoutcome",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                own.execute(statement)
    assert retention.erase(run)
    assert LateOutcome.objects.count() == 0


def test_a_big_late_result_is_stored_by_its_hash(
    desks: Desks, slow: Slow, lost: Callable[[], UUID]
) -> None:
    slow.outcome = ToolResult(value="x" * KEPT_INLINE)
    run = lost()
    ended(desks, slow)
    assert desks[1].advance(run).status == "completed"
    (arrived,) = [event for event in events(run) if event["type"] == "OutcomeArrived"]
    assert arrived["result"] is None
    assert arrived["stored"]
    assert told(desks[1])["content"] == "x" * KEPT_INLINE
