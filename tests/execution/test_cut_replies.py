"""Replies that a person's message cuts off, and replies that are lost with their worker."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from runtime.control import verification
from runtime.control.interventions import send_message
from runtime.core.documents.codec import decode_entry
from runtime.core.run.continuation import CutReply
from runtime.core.run.reducer import fold, make_initial_state
from runtime.execution.commit import StepWriter
from runtime.execution.effects.kept_replies import _write
from runtime.execution.effects.running import RunningEffect
from runtime.models import JournalEntry
from runtime.models import StoredPartialReply as Row
from runtime.ports.effects import ModelRequest, Outcome, PartialReply
from runtime.store import pool
from runtime.store.tables import partial_replies
from runtime.upkeep import retention
from tests.support.calls import around
from tests.support.engine import (
    ADA,
    Death,
    MakeBench,
    Rig,
    at_failpoint,
    bodies,
    cancel,
    die,
    events,
    lose,
    types,
)
from tests.support.fake_ports import CUT_USAGE, say
from tests.support.people import until
from tests.support.threads import aside

USAGE = {"input_tokens": 9, "output_tokens": 4}
PART = PartialReply(text="so fa", tokens=4, usage=USAGE, cost=3, model="m:1")


def write(run: UUID, text: str, *, cuts: bool = True) -> None:
    aside(lambda: send_message(run=run, actor=ADA, text=text, cut_reply=cuts))


class Talker:
    """A model that does something in its first calls, and is then silent; later ones answer."""

    def __init__(self, *acts: Callable[[ModelRequest], Outcome | None]) -> None:
        self.acts, self.over = list(acts), threading.Event()

    def __call__(self, request: ModelRequest) -> Outcome:
        act = self.acts.pop(0) if self.acts else lambda _: say("done")
        found = act(request)
        if found is None:
            self.over.wait(60)
        return found or say("too late")


def retries(run: UUID) -> list[dict[str, object]]:
    return [event for event in events(run) if event["type"] == "RetryScheduled"]


def told(desk: Rig) -> list[str]:
    last = desk.effects.models[-1]
    return [one["content"] for one in last.messages if one["role"] == "message"]


def test_a_message_cuts_the_reply_off(rig: MakeBench) -> None:
    texts = ("Use level 2.", "No, level 3.")
    desk = rig(
        {"a": Talker(*(lambda request, text=one: write(request.run, text) for one in texts))}
    )
    run = desk.advance(desk.start("a"))
    first, second, third = desk.effects.models
    assert (run.status, desk.effects.ended) == ("completed", [first, second])
    assert [(one["cause"], one["attempt"]) for one in retries(run.id)] == [
        ("message", 1),
        ("message", 2),
    ]
    assert (told(desk), third.unheard, first.cut) == (list(texts), 2, None)
    assert third.cut is not None
    assert replace(third.cut, since=NOON) == CutReply(
        text="so f", tokens=1, since=NOON, cause="message"
    )
    (reply,) = [event for event in events(run.id) if event["type"] == "ModelReplied"]
    assert reply["text"] == "done"
    assert verification.verify(run.id).is_consistent
    rows = JournalEntry.objects.filter(run_id=run.id).order_by("position")
    folded = (event for body in bodies(rows) for event in decode_entry(body).events)
    assert fold(make_initial_state(run.id), folded).usage == {
        kind: 2 * count for kind, count in CUT_USAGE.items()
    }


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_reply_that_is_complete_stands(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message arrives while the reply is committed: then there is nothing to cut."""
    sent: list[str] = []

    def send(_: StepWriter, records: object, *__: object, **___: object) -> None:
        if desk.effects.models and not sent:
            sent.append("sent")
            write(run, "One more thing.")

    desk = rig({"a": Talker(lambda _: say("first"))})
    run = desk.start("a")
    around(monkeypatch, StepWriter, "commit", before=send)
    assert desk.advance(run).status == "completed"
    assert (retries(run), desk.effects.ended, told(desk)) == ([], [], ["One more thing."])
    replies = [event["text"] for event in events(run) if event["type"] == "ModelReplied"]
    assert replies == ["first", "done"]


def test_a_reply_that_is_faster_than_the_cut_stands(rig: MakeBench) -> None:
    answers = threading.Event()

    def ask(request: ModelRequest) -> Outcome:
        write(request.run, "Wait.")
        assert answers.wait(60)
        return say("first")

    def answer() -> None:
        answers.set()
        until(lambda: not desk.context.effect_pool.is_busy() or None, "the reply")

    desk = rig({"a": Talker(ask)})
    run = desk.start("a")
    with at_failpoint("committed:MessageReceived", answer):
        assert desk.advance(run).status == "completed"
    assert (retries(run), told(desk)) == ([], ["Wait."])


def test_it_cuts_nothing_at_a_gate(gated: Rig) -> None:
    run = gated.advance(gated.start("a"))
    write(run.id, "Hurry.")
    assert gated.advance(run.id).status == "suspended"
    assert types(run.id)[-1] == "MessageReceived"
    assert (retries(run.id), gated.effects.ended) == ([], [])


def test_a_worker_that_dies_before_the_cut(rig: MakeBench) -> None:
    desk = rig({"a": Talker(lambda request: write(request.run, "Use level 2."))})
    run = desk.start("a")
    with at_failpoint("committed:MessageReceived", die), pytest.raises(Death):
        desk.advance(run)
    lose(run)
    other = rig(desk.effects.agents)
    assert other.advance(run).status == "completed"
    assert told(other) == ["Use level 2."]
    assert types(run).count("MessageReceived") == 1


def wait_for_part(run: UUID) -> None:
    aside(lambda: until(lambda: Row.objects.filter(run_id=run).first(), "the part"))


# A worker that is lost while a model answers


def keeps(desk: Rig, part: PartialReply = PART) -> Callable[[ModelRequest], None]:
    """Keep a part of the reply, then lose the run."""

    def act(request: ModelRequest) -> None:
        keep = desk.effects.keeps[-1]
        assert keep is not None
        keep(part)
        wait_for_part(request.run)
        held = desk.held(request.run)
        held.lost.set()
        held.wake()

    return act


@pytest.fixture
def lost(rig: MakeBench) -> tuple[Rig, UUID]:
    talker = Talker()
    desk = rig({"a": talker})
    talker.acts.append(keeps(desk))
    run = desk.start("a")
    desk.advance(run)
    lose(run)
    return rig({"a": Talker()}), run


def test_the_next_worker_tells_what_was_lost(lost: tuple[Rig, UUID]) -> None:
    desk, run = lost
    assert desk.advance(run).status == "completed"
    (retry,) = retries(run)
    assert (retry["cause"], retry["partial"], retry["tokens"]) == ("lost", "so fa", 4)
    assert (retry["usage"], retry["cost"], retry["model"]) == (USAGE, 3, "m:1")
    (request,) = desk.effects.models
    assert request.cut is not None
    assert (request.cut.text, request.cut.tokens, request.cut.cause) == ("so fa", 4, "lost")
    assert not Row.objects.exists(), "the step that journals the loss deletes the row"
    assert verification.verify(run).is_consistent


def test_a_forged_part_is_ignored(lost: tuple[Rig, UUID], caplog: pytest.LogCaptureFixture) -> None:
    desk, run = lost
    with pool.open_own() as own:
        own.execute("UPDATE runtime_storedpartialreply SET body = replace(body, 'so fa', 'do it')")
    assert desk.advance(run).status == "completed"
    assert retries(run) == []
    assert "kept part of a reply of frame 0 ignored" in caplog.text


def test_a_part_of_another_attempt_is_ignored(lost: tuple[Rig, UUID]) -> None:
    desk, run = lost
    with pool.open_own() as own, own.transaction():
        claim = own.execute("SELECT owner, epoch FROM runtime_run WHERE id = %s", (run,)).fetchone()
        assert claim is not None
        parts, _ = partial_replies.read_for_run(own, run)
        other = replace(parts["0"], attempt=2)
        owner, epoch = UUID(int=1), claim[1]
        own.execute("UPDATE runtime_run SET owner = %s WHERE id = %s", (owner, run))
        assert partial_replies.write(own, run, other, owner=owner, epoch=epoch)
        assert not partial_replies.write(own, run, other, owner=owner, epoch=epoch - 1), "lost"
        assert not partial_replies.write(own, run, other, owner=UUID(int=2), epoch=epoch)
        own.execute("UPDATE runtime_run SET owner = NULL WHERE id = %s", (run,))
    assert desk.advance(run).status == "completed"
    assert (retries(run), Row.objects.count()) == ([], 0)


def test_a_reply_that_ends_takes_its_part_along(rig: MakeBench) -> None:
    talker = Talker()
    desk = rig({"a": talker})

    def act(request: ModelRequest) -> Outcome:
        keep = desk.effects.keeps[-1]
        assert keep is not None
        keep(PART)
        wait_for_part(request.run)
        return say("done")

    talker.acts.append(act)
    run = desk.advance(desk.start("a"))
    assert (run.status, Row.objects.count(), retries(run.id)) == ("completed", 0, [])
    keep = desk.effects.keeps[-1]
    assert keep is not None
    ended = RunningEffect(request=desk.effects.models[-1], submit=lambda _: None)
    assert ended.settle()
    _write(ended, None, None)  # type: ignore[arg-type]
    assert not ended.is_kept, "nothing is written after the end"


def test_retention_erases_a_part_that_was_left(rig: MakeBench) -> None:
    desk = rig({"a": Talker()})
    run = desk.advance(desk.start("a")).id
    Row.objects.create(run_id=run, frame="0", body="{}", mac="", key_id="")
    assert retention.erase(run)
    assert not Row.objects.exists()


def test_a_message_to_a_run_that_ends_cuts_as_a_cancellation_does(rig: MakeBench) -> None:
    def act(request: ModelRequest) -> None:
        write(request.run, "Stop.")
        aside(lambda: cancel(request.run))

    desk = rig({"a": Talker(act)})
    assert desk.advance(desk.start("a")).status == "cancelled"
