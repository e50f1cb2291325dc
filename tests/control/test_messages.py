"""Messages of people to a run: its model receives them with its next call, despite crashes and pauses in between."""

import threading
from uuid import UUID

import pytest
from django.db import transaction

from runtime.control.fork import fork as fork_run
from runtime.control.messages import send_message
from runtime.control.verification import verify
from runtime.core.limits import MAX_UNDELIVERED
from runtime.errors import RunEnded, TooManyUndelivered
from runtime.models import Run, Signal
from runtime.ports.access import Actor
from runtime.ports.effects import ModelRequest, Outcome
from tests.support.engine import ADA, MakeBench, Rig, cancel, events, types
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.threads import Hold, holding, wait_until_blocked

BEA = Actor(person="bea")


def write(run: UUID, text: str = "hello") -> None:
    send_message(run=run, actor=BEA, text=text)


def given(desk: Rig) -> list[str]:
    """The roles of the messages that a model was last given."""
    return [message["role"] for message in desk.effects.models[-1].messages]


@pytest.fixture
def gated(rig: MakeBench) -> Rig:
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True, expires_in=3600))


def test_a_message_at_a_gate_comes_with_the_turns_results(gated: Rig) -> None:
    run = gated.start("a")
    gated.advance(run)
    write(run)
    row = gated.advance(run)
    assert (row.status, row.unheard, row.owner) == ("suspended", 1, None)
    assert events(run)[-1] == {"type": "MessageReceived", "by": "bea", "text": "hello"}
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
    assert "wrote" in [act for _, _, act, _ in gated.approvals.notes]
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
        _wait_until_taken_up(desk, run)
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


def test_a_cancelled_run_takes_no_message_and_receives_none(gated: Rig) -> None:
    run = gated.start("a")
    gated.advance(run)
    write(run)
    cancel(run)
    for status in ("cancelling", "cancelled"):
        with pytest.raises(RunEnded) as raised:
            write(run)
        assert raised.value.run_status == status
        assert gated.advance(run).status == "cancelled"
    assert Run.objects.get(id=run).unheard == 1
    assert verify(run).is_consistent


def test_the_number_of_unread_messages_is_limited(gated: Rig) -> None:
    """Messages that a worker has journaled count like new ones."""
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


def _wait_until_taken_up(desk: Rig, run: UUID) -> None:
    desk.heartbeat.check_signals(run)
    while Signal.objects.filter(run=run).exists():
        threading.Event().wait(0.01)
