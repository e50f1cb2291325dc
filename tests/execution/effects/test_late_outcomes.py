"""A write that ends after its worker has lost the run: the outcome settles the call in doubt, or is evidence."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import transaction
from django.utils import timezone

from runtime.control import verification
from runtime.control.user_actions import settle, undo
from runtime.core.values.enums import Decision, Verdict
from runtime.core.values.limits import KEPT_INLINE
from runtime.execution.claim import advance
from runtime.models import Gate, LateOutcome, Run
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult, Unknown
from runtime.store import pool, runs
from runtime.store.tables import late_outcomes
from runtime.upkeep import retention
from tests.support.calls import around
from tests.support.engine import LONG, MakeBench, cancel, events, failing, lose, types
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.threads import Hold, aside, in_thread

SENT = ToolResult(value={"message_id": "m-1"})
GIVE_UP = Decision(verdict=Verdict.GIVE_UP, by="bea", reason="nothing in the log")


def taken_away(run: UUID) -> None:
    """Act like another worker that claimed the run and died."""
    with pool.open_own() as own:
        own.execute(
            "UPDATE runtime_run SET epoch = epoch + 1, owner = %s WHERE id = %s", (uuid4(), run)
        )
    lose(run)


class Late:
    """Two workers; the write of the first is under way until the test lets it end."""

    def __init__(self, rig: MakeBench) -> None:
        self.slow = Hold(SENT)
        agents = {"a": turns(ask(("t", {})), say("done"))}
        self.first = rig(agents, t=FakeTool(body=self.slow))
        self.other = rig(agents, t=FakeTool(), asked=FakeTool(gated=True))

    def lost(self) -> tuple[UUID, UUID]:
        """A run that its first worker has lost, and the in-doubt gate that the second has opened."""
        run = self.first.start("a")
        worker = in_thread(lambda: advance(run, self.first.context))
        assert self.slow.begun.wait(LONG)
        taken_away(run)
        held = self.first.held(run)  # is told now, and not with the next heartbeat
        held.lost.set()
        held.wake()
        assert self.other.advance(run).status == "suspended"
        worker.join(LONG)
        assert not worker.is_alive()
        (gate,) = self.other.open_gates(run)
        return run, gate.id

    def end(self) -> None:
        """Let the write end, and wait for its worker to record the outcome."""
        self.slow.go_on.set()
        self.first.context.effect_pool.close()


@pytest.fixture
def late(rig: MakeBench) -> Iterator[Late]:
    one = Late(rig)
    yield one
    one.slow.go_on.set()


def test_a_late_result_settles_the_call(late: Late) -> None:
    late.other.effects.agents["a"] = turns(ask(("t", {})), ask(("asked", {})))
    run, gate = late.lost()
    late.end()
    mailbox = Run.objects.get(id=run).mailbox
    with pool.open_own() as own:
        (outcome,) = late_outcomes.read_for_run(own, run).genuine
        assert late_outcomes.insert(own, outcome) is False, "an attempt has one"
    assert Run.objects.get(id=run).mailbox == mailbox
    assert late.other.advance(run).status == "suspended"  # at the gate of its next call
    assert late.other.heard() == {
        "call": "c1.0",
        "tool": "t",
        "outcome": "returned",
        "content": {"message_id": "m-1"},
    }
    assert (Gate.objects.get(id=gate).state, late.other.approvals.closed) == ("closed", [gate])
    (arrived,) = [event for event in events(run) if event["type"] == "OutcomeArrived"]
    assert arrived["gate"] == str(gate)
    assert "GateDecided" not in types(run)
    assert (len(late.first.effects.calls), late.other.effects.calls) == (1, [])
    assert verification.verify(run).findings == ()


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (ToolFailure(error="no such mailbox"), ("failed", "no such mailbox")),
        (ToolResult(value="x" * KEPT_INLINE), ("returned", "x" * KEPT_INLINE)),
    ],
    ids=["an error", "a big result"],
)
def test_other_late_outcomes_settle_it(late: Late, outcome: Outcome, told: tuple[str, str]) -> None:
    late.slow.reply = outcome
    run, _ = late.lost()
    late.end()
    assert late.other.advance(run).status == "completed"
    assert (late.other.heard()["outcome"], late.other.heard()["content"]) == told
    (arrived,) = [event for event in events(run) if event["type"] == "OutcomeArrived"]
    assert arrived["result"] is None
    assert bool(arrived["stored"]) is isinstance(outcome, ToolResult)  # by its hash
    with pool.open_own() as own, pytest.raises(psycopg.errors.InsufficientPrivilege):
        own.execute("UPDATE runtime_lateoutcome SET frame = ''")
    with pool.open_own() as own, pytest.raises(psycopg.errors.InsufficientPrivilege):
        own.execute("DELETE FROM runtime_lateoutcome")
    assert retention.erase(run)
    assert LateOutcome.objects.count() == 0, "it goes with the payloads, and not before"


@pytest.mark.parametrize("is_told", [False, True], ids=["by its step", "by the heartbeat"])
def test_an_outcome_that_came_and_was_not_written_is_handed_in(
    rig: MakeBench, is_told: bool
) -> None:
    """The worker receives the outcome and the loss of the run at the same moment."""

    def takes_it_away(request: ToolRequest) -> Outcome:
        taken_away(request.run)
        if is_told:
            desk.held(request.run).lost.set()
        return SENT

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(body=takes_it_away))
    run = desk.start("a")
    desk.advance_once(run)
    assert LateOutcome.objects.count() == 1
    assert desk.advance(run).status == "completed"
    assert types(run).count("ToolStarted") == 1
    assert "GateOpened" not in types(run)  # the next worker read the outcome first


@pytest.mark.parametrize("when", ["before", "in the same moment"])
def test_an_earlier_decision_stays(late: Late, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """A person may decide after the worker has read its signals and before it journals the late outcome."""
    run, gate = late.lost()
    left = [when]

    def decide(*_: object) -> None:
        if left:
            left.clear()
            aside(lambda: late.other.decide(gate, GIVE_UP.verdict, GIVE_UP.reason))

    if when == "before":
        decide()
    late.end()
    around(monkeypatch, late_outcomes, "read_for_run", before=decide)
    assert late.other.advance(run).status == "completed"
    assert late.other.heard()["content"] == GIVE_UP.reason
    assert "OutcomeArrived" not in types(run)
    assert LateOutcome.objects.filter(run=run).count() == 1


def test_a_late_outcome_of_an_ended_run_is_evidence(late: Late) -> None:
    run, _ = late.lost()
    cancel(run)
    assert late.other.advance(run).status == "cancelled"
    late.end()
    assert LateOutcome.objects.filter(run=run).count() == 1
    assert verification.verify(run).findings == ()


def test_a_decision_that_can_be_undone_stays(late: Late) -> None:
    run, gate = late.lost()
    with transaction.atomic():
        settle(gate=gate, decision=GIVE_UP, effective_at=timezone.now() + timedelta(hours=1))
    late.end()
    assert late.other.advance(run).status == "suspended"
    with transaction.atomic():
        undo(gate=gate)
    assert late.other.advance(run).status == "completed"
    assert late.other.heard()["content"] == {"message_id": "m-1"}


def test_the_outcome_of_another_attempt_or_time_settles_nothing(late: Late) -> None:
    """After a restore the attempt has the same number and another intent, or the other way round."""
    run, gate = late.lost()
    late.other.effects.tools["t"] = failing(9, Unknown(error="cut off"))
    late.other.decide(gate, Verdict.RUN_AGAIN)
    assert late.other.advance(run).status == "suspended"  # the second attempt is in doubt
    late.end()
    with pool.open_own() as own:
        (first,) = late_outcomes.read_for_run(own, run).genuine
        assert late_outcomes.insert(own, replace(first, attempt=2))
        (*_, started) = [event for event in events(run) if event["type"] == "ToolStarted"]
        at = datetime.fromisoformat(str(started["at"]))
        assert late_outcomes.insert(own, replace(first, attempt=3, started_at=at))
    with transaction.atomic():
        runs.notify_signal(pool.use_django_connection(), run)
    assert late.other.advance(run).status == "suspended"
    assert "OutcomeArrived" not in types(run)


def test_a_row_with_any_changed_part_settles_nothing(late: Late) -> None:
    run, _ = late.lost()
    late.end()
    with pool.open_own() as own:
        own.execute("ALTER TABLE runtime_lateoutcome DISABLE TRIGGER USER")
        for change in (
            "frame = '0.c1.1'",
            "call = 'c1.1'",
            "attempt = 2",
            "started_at = started_at + interval '1 second'",
            "worker = gen_random_uuid()",
            "at = at + interval '1 second'",
        ):
            with own.transaction(force_rollback=True):
                own.execute(f"UPDATE runtime_lateoutcome SET {change}")
                assert len(late_outcomes.read_for_run(own, run).forged) == 1, change
        own.execute("UPDATE runtime_lateoutcome SET body = replace(body, 'm-1', 'm-2')")
        own.execute("ALTER TABLE runtime_lateoutcome ENABLE TRIGGER USER")
    assert late.other.advance(run).status == "suspended"
    assert [one.subject for one in verification.verify(run).findings] == ["late outcome"]
