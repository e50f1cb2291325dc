"""The parts omitted from a brief continuation are read from its run's entries, equal to the reducer's."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.continuation import Continuation
from runtime.core.documents import conversations
from runtime.core.documents.codec import (
    BRIEF,
    decode_continuation,
    encode_continuation,
    encode_entry,
)
from runtime.core.documents.conversations import Brief, Conversations
from runtime.core.enums import EffectClass
from runtime.core.errors import NewerSchema, Unreadable
from runtime.core.events import (
    AgentChanged,
    BlobRef,
    CallAdmitted,
    Compacted,
    Event,
    Forked,
    Imported,
    MessageReceived,
    ModelReplied,
    OutcomeArrived,
    OutcomeUnknown,
    ToolReturned,
    ToolStarted,
)
from runtime.core.machine.replay import Entry, initial, step
from tests.core.machine.events import STARTED, TERMS
from tests.core.machine.test_histories import first
from tests.core.machine.walks import AT, Walk

# A fork has messages of another run; an imported run loses permissions; a summary outlasts the entries before it.
UNTOLD = (Forked, Imported, Compacted)
LONG = "x" * 100
RETURNED = ToolReturned(frame="0", call="c1.0", attempt=1, result={"text": LONG})


def texts_of(events: list[Event]) -> list[str]:
    return [encode_entry(Entry(at=AT, events=(event,))) for event in events]


def read(texts: list[str]) -> Conversations:
    found = Conversations()
    for text in texts:
        found.read(text)
    return found


def run_of(*events: Event) -> tuple[Continuation, list[str]]:
    now = initial(UUID(int=1))
    for event in events:
        now = step(now, [event], head="mac", at=AT)
    return now, texts_of(list(events))


def document_of(now: Continuation, texts: list[str]) -> str:
    """A brief continuation, as it is stored."""
    brief = read(texts).brief(now)
    assert brief is not None
    return encode_continuation(brief.state, brief.told)


def _states(walk: Walk, every: int) -> Iterator[tuple[Continuation, list[Event]]]:
    """Some states of a walk, each with the events before it."""
    now = initial(walk.now.run)
    for position, event in enumerate(walk.history, start=1):
        now = step(now, [event], head="mac", at=AT)
        if position % every == 0:
            yield now, walk.history[:position]


def _read_again(brief: Brief, texts: list[str]) -> Continuation:
    assert brief.told is not None
    text = encode_continuation(brief.state, brief.told)
    assert json.loads(text)["schema"] == BRIEF
    return decode_continuation(text, lambda position: texts[position - 1])


def test_every_state_is_read_from_its_entries_as_it_was() -> None:
    told = 0
    for walk in first():
        for now, history in _states(walk, every=19):
            texts = texts_of(history)
            brief = read(texts).brief(now)
            if now.ended or any(isinstance(event, UNTOLD) for event in history):
                assert brief is None or _read_again(brief, texts) == now
                continue
            assert brief is not None
            assert _read_again(brief, texts) == now
            told += 1
    assert told >= 20  # also of the few walks with which mutants are tried


def test_every_state_is_read_on_from_the_one_before() -> None:
    """A worker reads each entry once, and has read others before it writes the next continuation."""
    for walk in first(60):
        found, texts = Conversations(), texts_of(walk.history)
        for now, _ in _states(walk, every=11):
            for text in texts[found.position : now.position]:
                found.read(text)
            brief = found.brief(now)
            assert brief is None or _read_again(brief, texts) == now


def test_a_typed_result_that_its_reply_leaves_out_is_read() -> None:
    answer = ModelReplied(
        frame="0", reply={}, text="", calls=(), usage={}, output={"sum": 3}, output_kept=True
    )
    now, texts = run_of(*STARTED, RETURNED, answer)
    brief = read(texts).brief(now)
    assert brief is not None
    assert _read_again(brief, texts) == now


DONE = ModelReplied(frame="0", reply={}, text="done", calls=(), usage={})


def test_a_late_stored_result_is_read_from_its_entry() -> None:
    late = OutcomeArrived(
        frame="0",
        call="c1.0",
        attempt=1,
        gate=None,
        outcome="returned",
        at=AT,
        stored=BlobRef(digest="sha256:d", size=100, preview="x"),
    )
    unknown = OutcomeUnknown(frame="0", call="c1.0", attempt=1, error="cut")
    now, texts = run_of(*STARTED, unknown, late, DONE)
    brief = read(texts).brief(now)
    assert brief is not None
    assert _read_again(brief, texts) == now


def test_a_running_call_of_a_new_write_is_read_as_a_write() -> None:
    read_only = replace(TERMS, effect=EffectClass.READ)
    admitted = CallAdmitted(frame="0", call="c1.0", terms=read_only)
    started = ToolStarted(frame="0", call="c1.0", attempt=1, at=AT)
    changed = AgentChanged(
        frame="0", before="f", fingerprint="g", prompt="p", changes=(), writes=("t",)
    )
    now, texts = run_of(*STARTED[:3], admitted, started, changed, RETURNED, DONE)
    brief = read(texts).brief(now)
    assert brief is not None
    assert _read_again(brief, texts) == now


def test_nothing_that_an_entry_tells_is_written_again() -> None:
    now, texts = run_of(*STARTED, RETURNED, MessageReceived(by="bea", text="stop"))
    document = json.loads(document_of(now, texts))
    (frame,) = document["frames"].values()
    assert "messages" not in frame
    assert "input" not in document
    assert document["told"] == {"0": [3, 0]}


@pytest.mark.parametrize(
    "event",
    [
        Imported(by="eve", manifest="{}", key="k", signature="00"),
        Forked(of=UUID(int=2), position=1, by="eve", state={}),
        Compacted(frame="0", until=2, summary="so far", by="author", usage={}),
    ],
    ids=lambda event: event.type,
)
def test_parts_missing_from_the_entries_are_not_omitted(event: Event) -> None:
    now, texts = run_of(*STARTED, RETURNED)
    several = encode_entry(Entry(at=AT, events=(event, MessageReceived(by="bea", text="stop"))))
    assert read([*texts, several]).brief(now) is None


def test_a_state_that_its_entries_do_not_tell_is_not_left_out() -> None:
    now, texts = run_of(*STARTED, RETURNED)
    other, _ = run_of(*STARTED, ToolReturned(frame="0", call="c1.0", attempt=1, result="other"))
    assert read(texts).brief(now) is not None
    assert read(texts).brief(other) is None
    assert read(texts[:-1]).brief(now) is None
    assert read(texts[:1]).brief(now) is None


def test_entries_that_tell_another_number_of_messages_are_folded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As they do in a release that reads an event in another way."""
    now, texts = run_of(*STARTED, RETURNED)
    text = document_of(now, texts)
    assert '"told":{"0": [3, 0]}' in text
    monkeypatch.setitem(conversations._CALLS, "ToolReturned", lambda *_: None)
    assert read(texts).restored(now, {"0": (3, 0)}) is None
    assert decode_continuation(text, lambda position: texts[position - 1]) == now


@pytest.mark.parametrize(
    "told", [{"0": [2, 0]}, {"0": [3, 1]}, {"0": [3, 0], "0.c1.0": [1, 0]}, {}], ids=str
)
def test_another_number_of_messages_or_frames_is_not_restored(told: dict[str, Any]) -> None:
    now, texts = run_of(*STARTED, RETURNED)
    assert read(texts).restored(now, told) is None


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_only_entries_that_were_not_read_before_are_read(count: int) -> None:
    now, texts = run_of(*STARTED, RETURNED)
    text, found = document_of(now, texts), read(texts[:count])
    seen: list[int] = []

    def text_of(position: int) -> str:
        seen.append(position)
        return texts[position - 1]

    assert decode_continuation(text, text_of, found) == now
    assert seen == list(range(count + 1, len(texts) + 1))
    assert found.position == len(texts)


def test_more_entries_than_it_is_of_are_read_anew() -> None:
    now, texts = run_of(*STARTED, RETURNED)
    later = texts_of([MessageReceived(by="bea", text="stop")])
    found = read([*texts, *later])
    assert decode_continuation(document_of(now, texts), lambda n: texts[n - 1], found) == now
    assert found.position == len(texts)


def test_without_its_entries_it_is_not_read() -> None:
    now, texts = run_of(*STARTED, RETURNED)
    text = document_of(now, texts)
    with pytest.raises(Unreadable, match="lack its omitted parts"):
        decode_continuation(text)
    with pytest.raises(Unreadable, match="lack its omitted parts"):
        decode_continuation(text, lambda position: texts[0])


def test_entries_of_a_newer_schema_are_left_alone() -> None:
    now, texts = run_of(*STARTED, RETURNED)
    text = document_of(now, texts)
    texts[2] = texts[2].replace('{"schema":5', '{"schema":6')
    assert not read(texts).whole
    with pytest.raises(NewerSchema):
        decode_continuation(text, lambda position: texts[position - 1])


@pytest.mark.parametrize("text", ["", "{}", '{"schema":5}', '{"schema":5,"events":[{}]}', "[1]"])
def test_a_text_that_is_no_entry_restores_nothing(text: str) -> None:
    now, texts = run_of(*STARTED, RETURNED)
    assert read([*texts, text]).brief(now) is None
