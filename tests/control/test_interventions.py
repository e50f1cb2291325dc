"""People intervene in runs: they pause them, write to them, and switch agents off."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone

from runtime.control.forks import fork as fork_run
from runtime.control.interventions import send_message
from runtime.control.kill_switches import disengage, engage, list_switches
from runtime.control.verification import verify
from runtime.core.values.enums import Verdict
from runtime.core.values.limits import MAX_UNDELIVERED
from runtime.errors import RunEnded, SwitchAlreadyEngaged, SwitchNotEngaged, TooManyUndelivered
from runtime.models import Gate, KillSwitch, Run, Signal
from runtime.ports.access import Actor
from runtime.ports.effects import ModelRequest, Outcome, ToolRequest, ToolResult
from runtime.store import pool
from runtime.upkeep import due_runs
from tests.support.engine import (
    ADA,
    MakeBench,
    Rig,
    cancel,
    claim,
    events,
    later,
    lose,
    pause,
    resume,
    set_clock,
    types,
)
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import Hold, aside, holding, wait_until_blocked


def test_a_run_paused_before_its_first_claim_starts_nothing(gated: Rig) -> None:
    run = gated.start("a")
    pause(run, "wait a minute")
    row = gated.advance(run)
    assert (row.status, row.due_at, row.owner) == ("paused", None, None)
    assert gated.effects.models == []
    assert events(run)[-1] == {"type": "Paused", "by": "ada", "reason": "wait a minute"}
    Run.objects.filter(id=run).update(due_at=timezone.now())
    with pool.pooled() as held:
        assert claim(held, run) is not None
    assert Run.objects.get(id=run).status == "paused"
    lose(run)
    assert gated.advance(run).status == "paused"
    assert gated.effects.models == []
    resume(run, "the books are open")
    assert gated.advance(run).status == "suspended"
    assert {"type": "Resumed", "by": "ada", "reason": "the books are open"} in events(run)


def test_a_decision_in_a_pause_is_kept_and_takes_effect_after_it(gated: Rig) -> None:
    run = gated.start("a")
    gated.advance(run)
    pause(run)
    paused = gated.advance(run)
    gate = gated.open_gates(run)[0]
    assert paused.status == "paused"
    assert paused.due_at is not None
    assert paused.due_at > timezone.now() + timedelta(minutes=50)
    gated.decide(gate.id, Verdict.APPROVE)
    row = gated.advance(run)
    assert (row.status, row.due_at, gated.effects.calls) == ("paused", None, [])
    assert Gate.objects.get(id=gate.id).state == "effective"
    resume(run)
    assert gated.advance(run).status == "completed"
    assert len(gated.effects.calls) == 1


def test_a_gate_expires_in_a_pause(gated: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = gated
    run = desk.start("a")
    for act in (pause, resume, pause):
        act(run)
        desk.advance(run)
    assert desk.open_gates(run)
    set_clock(monkeypatch, lambda: timezone.now() + timedelta(hours=2))
    later(run)
    row = desk.advance(run)
    assert (row.status, row.due_at, desk.open_gates(run)) == ("paused", None, [])
    resume(run)
    assert desk.advance(run).status == "completed"
    assert (desk.heard()["outcome"], desk.heard()["verdict"]) == ("denied", "expire")
    assert desk.effects.calls == []


def test_an_expiry_fails_the_run_if_its_request_says_so(
    gated: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated.approvals.fails = True
    run = gated.start("a")
    gated.advance(run)
    set_clock(monkeypatch, lambda: timezone.now() + timedelta(hours=2))
    later(run)
    assert gated.advance(run).status == "failed"
    decided, *_, end = events(run)[-3:]
    assert (decided["verdict"], end["type"]) == ("expire", "Failed")
    assert end["error"] == decided["reason"]
    assert (gated.effects.calls, len(gated.effects.models)) == ([], 1)
    assert verify(run).findings == ()


def test_running_calls_of_a_paused_run_are_journaled(rig: MakeBench) -> None:
    hold = Hold(ToolResult(value="done in the pause"))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(body=hold))
    run = desk.start("a")
    with holding(desk, run, hold):
        pause(run)
        desk.heartbeat.check_signals(run)
        until(lambda: Run.objects.get(id=run).status == "paused" or None, "the pause")
    row = Run.objects.get(id=run)
    assert (row.status, row.due_at, row.owner) == ("paused", None, None)
    assert types(run)[-2:] == ["Paused", "ToolReturned"]
    assert len(desk.effects.models) == 1
    resume(run)
    assert desk.advance(run).status == "completed"


def test_a_pause_and_its_end_are_said_once_each_even_if_no_worker_saw_it(gated: Rig) -> None:
    run = gated.start("a")
    for act in (resume, pause, pause, resume, resume):
        act(run)
    assert gated.advance(run).status == "suspended"
    assert [one for one in types(run) if one in ("Paused", "Resumed")] == ["Paused", "Resumed"]
    assert [note[1:3] for note in gated.approvals.notes] == [(ADA, "paused"), (ADA, "resumed")]


def test_a_signal_with_the_row_lock_is_not_lost_at_suspension(rig: MakeBench) -> None:
    """The signal's transaction raised the mailbox and is not committed when the worker wants to let go."""
    hold = Hold(ask(("t", {})))
    desk = rig({"a": hold}, t=FakeTool(gated=True))
    run = desk.start("a")
    with holding(desk, run, hold), transaction.atomic():
        cancel(run)
        hold.go_on.set()
        wait_until_blocked()
    row = Run.objects.get(id=run)
    assert (row.status, row.reason) == ("cancelled", "enough")
    assert not Signal.objects.filter(run=run).exists()
    assert desk.open_gates(run) == []


BEA = Actor(person="bea")


def write(run: UUID, text: str = "hello") -> None:
    send_message(run=run, actor=BEA, text=text)


def given(desk: Rig) -> list[str]:
    """The roles of the messages that a model was last given."""
    return [message["role"] for message in desk.effects.models[-1].messages]


def test_a_message_at_a_gate_comes_with_the_turns_results(gated: Rig) -> None:
    run = gated.start("a")
    gated.advance(run)
    write(run)
    row = gated.advance(run)
    assert (row.status, row.unheard, row.owner) == ("suspended", 1, None)
    message = {"type": "MessageReceived", "by": "bea", "text": "hello"}
    assert events(run)[-1] == message | {"reviewer": False, "cuts": False}
    assert len(gated.effects.models) == 1
    assert verify(run).is_consistent
    fork = fork_run(run=run, position=row.position, actor=ADA)
    assert (Run.objects.get(id=fork).unheard, verify(fork).is_consistent) == (1, True)
    row = gated.answer(run)
    assert (row.status, row.unheard) == ("completed", 0)
    assert given(gated) == ["input", "model", "results", "message"]
    assert gated.effects.models[-1].messages[-1] == {
        "role": "message",
        "by": "bea",
        "content": "hello",
    }
    assert (BEA, "wrote") in [note[1:3] for note in gated.approvals.notes]
    assert verify(run).is_consistent


def counting(request: ModelRequest) -> Outcome:
    return say(f"{len(request.messages)} messages")


def test_a_message_during_a_model_call_comes_after_its_reply(rig: MakeBench) -> None:
    """The answer was given without it, so the run does not end with it."""
    hold = Hold(counting)
    desk = rig({"a": hold})
    run = desk.start("a")
    with holding(desk, run, hold):
        write(run)
        desk.heartbeat.check_signals(run)
        until(lambda: not Signal.objects.filter(run=run).exists() or None, "it to be received")
    row = Run.objects.get(id=run)
    assert (row.status, row.output, row.unheard) == ("completed", '"3 messages"', 0)
    assert given(desk) == ["input", "model", "message"]
    assert types(run)[-2:] == ["ModelReplied", "Completed"]
    assert verify(run).is_consistent


def test_an_uncommitted_message_is_not_lost_at_the_end_of_a_run(rig: MakeBench) -> None:
    """The mailbox was raised and is not committed yet when the worker wants to write the end."""
    hold = Hold(counting)
    desk = rig({"a": hold})
    run = desk.start("a")
    with holding(desk, run, hold), transaction.atomic():
        write(run)
        hold.go_on.set()
        wait_until_blocked()
    assert Run.objects.get(id=run).output == '"3 messages"'
    assert types(run)[-3:] == ["MessageReceived", "ModelReplied", "Completed"]


def test_a_paused_run_can_be_cancelled_and_takes_nothing_more(gated: Rig) -> None:
    run = gated.start("a")
    pause(run)
    gated.advance(run)
    write(run)
    cancel(run)
    for status in ("cancelling", "cancelled"):
        for act in (pause, resume, write):
            with pytest.raises(RunEnded) as raised:
                act(run)
            assert raised.value.run_status == status
        assert gated.advance(run).status == "cancelled"
    assert Run.objects.get(id=run).unheard == 1, "its message is never received"
    assert verify(run).is_consistent
    Run.objects.filter(id=run).update(status="quarantined", ended_at=None)
    with pytest.raises(RunEnded):
        pause(run)


def test_the_number_of_unread_messages_is_limited(gated: Rig) -> None:
    run = gated.start("a")
    gated.advance(run)
    for number in range(MAX_UNDELIVERED - 1):
        write(run, f"message {number}")
    gated.advance(run)
    assert Run.objects.get(id=run).unheard == MAX_UNDELIVERED - 1
    write(run, "the last one")
    with pytest.raises(TooManyUndelivered):
        write(run)
    assert gated.answer(run).status == "completed"
    assert given(gated).count("message") == MAX_UNDELIVERED


def put(agent: str = "") -> KillSwitch:
    return KillSwitch.objects.create(agent=agent, reason="because")


def lift() -> None:
    with pool.open_own() as own:
        own.execute("UPDATE runtime_killswitch SET lifted_at = clock_timestamp()")


@pytest.mark.parametrize("stopped", ["", "a", "b"])
def test_nothing_new_starts_and_the_run_stays_where_it_is(rig: MakeBench, stopped: str) -> None:
    """Stopped are all agents, the run's own, or the one inside it whose tool works on meanwhile."""

    def body(request: ToolRequest) -> ToolResult:
        aside(lambda: put(stopped))
        until(lambda: desk.held(request.run).kill_switches or None, "a beat that reads them")
        return ToolResult(value="done")

    desk = rig(
        {"a": turns(ask(("b", {})), say("done")), "b": turns(ask(("t", {})), say("done"))},
        t=FakeTool(body=body),
    )
    run = desk.advance(desk.start("a"))
    assert (run.status, run.owner) == ("queued", None)
    assert types(run.id)[-1] == "ToolReturned"
    assert len(desk.effects.models) == 2
    assert run.due_at is not None
    if stopped != "b":
        assert desk.advance(run.id).epoch == run.epoch  # no worker claims it
        with pool.open_own() as own:
            assert due_runs.dispatch_window(own).hints == 0
    lift()
    Run.objects.filter(id=run.id).update(due_at=run.created_at)
    assert desk.advance(run.id).status == "completed"


def test_a_run_of_another_agent_goes_on(rig: MakeBench) -> None:
    put("b")
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool())
    assert desk.advance(desk.start("a")).status == "completed"


def test_a_stopped_run_can_be_cancelled(rig: MakeBench) -> None:
    put("a")
    desk = rig({"a": turns(say("done"))})
    run, other = desk.start("a"), desk.start("a")
    cancel(run)
    assert desk.advance(other).epoch == 0, "the signal of another run starts none"
    assert desk.advance(run).status == "cancelled"
    assert desk.effects.models == []


def test_a_stopped_run_consumes_decisions_and_starts_no_call(gated: Rig) -> None:
    run = gated.advance(gated.start("a"))
    put("a")
    assert gated.answer(run.id).status == "queued"
    assert types(run.id)[-1] == "GateDecided"
    assert gated.effects.calls == []
    lift()
    assert gated.advance(run.id).status == "completed"


@pytest.mark.django_db
def test_a_stop_is_put_once_and_lifted_once() -> None:
    stop = engage(agent="", reason="because", actor=None)
    with pytest.raises(SwitchAlreadyEngaged):
        engage(agent="", reason="again", actor=None)
    assert disengage(stop=stop.id, actor=None).lifted_at is not None
    with pytest.raises(SwitchNotEngaged):
        disengage(stop=stop.id, actor=None)
    assert [one.reason for one in list_switches(lifted=True, actor=None)] == ["because"]
