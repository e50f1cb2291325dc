"""The parts omitted from a brief continuation are read from its run's entries, equal to the reducer's."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any
from uuid import UUID

import pytest

from runtime.core.documents import codec, continuations
from runtime.core.documents.continuations import Brief, Conversations
from runtime.core.run import events
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import Event
from runtime.core.run.reducer import Entry, make_initial_state, step
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.errors import NewerSchema, Unreadable
from tests.core.run.events import AT, STARTED, options, replied
from tests.core.run.test_histories import first

CALL: dict[str, Any] = {"frame": "0", "call": "c1.0"}
# A fork has messages of another run; an imported run loses permissions; a summary outlasts the entries before it.
UNTOLD = (events.Forked, events.Imported, events.Compacted)
MESSAGE = events.MessageReceived(by="bea", text="stop")
RETURNED = events.ToolReturned(attempt=1, result={"text": "x" * 100}, **CALL)


def texts_of(happened: Iterable[Event]) -> list[str]:
    return [codec.encode_entry(Entry(at=AT, events=(event,))) for event in happened]


def read(texts: list[str]) -> Conversations:
    found = Conversations()
    for text in texts:
        found.read(text)
    return found


def run_of(*happened: Event) -> tuple[Continuation, list[str]]:
    now = make_initial_state(UUID(int=1))
    for event in happened:
        now = step(now, [event], head="mac", at=AT)
    return now, texts_of(happened)


def stored(brief: Brief | None) -> str:
    assert brief is not None
    text = continuations.encode_continuation(brief.state, brief.lengths)
    assert text.startswith('{"schema":1,"told":{')
    return text


def decoded(text: str, texts: list[str]) -> Continuation:
    return continuations.decode_continuation(text, lambda position: texts[position - 1])


@cache
def small() -> tuple[Continuation, list[str], str]:
    now, texts = run_of(*STARTED, RETURNED)
    return now, texts, stored(read(texts).shorten_continuation(now))


def test_every_state_is_read_from_its_entries_as_it_was() -> None:
    """A worker reads each entry once, and has read others before it writes the next continuation."""
    told = 0
    for walk in first(12):
        now, found, texts = (
            make_initial_state(walk.now.run),
            Conversations(),
            texts_of(walk.history),
        )
        for position, event in enumerate(walk.history, start=1):
            now = step(now, [event], head="mac", at=AT)
            if position % 11:
                continue
            for text in texts[found.position : position]:
                found.read(text)
            brief = found.shorten_continuation(now)
            untold = any(isinstance(event, UNTOLD) for event in walk.history[:position])
            assert brief is not None or now.ended or untold
            if brief is not None:
                assert decoded(stored(brief), texts) == now
                told += not untold
    assert told >= 20  # also of the few walks with which mutants are tried


STORED = events.BlobRef(digest="sha256:d", size=100, preview="x")
READ_ONLY = events.CallAdmitted(terms=options(), **CALL)
CHANGED = events.AgentChanged(
    frame="0", before="f", fingerprint="g", prompt="p", changes=(), writes=("t",)
)
UNKNOWN = events.OutcomeUnknown(attempt=1, error="cut", **CALL)
LATE = events.OutcomeArrived(attempt=1, gate=None, outcome="returned", at=AT, stored=STORED, **CALL)
HOLD: dict[str, Any] = {"gate": UUID(int=5), "frame": "0", "call": ""}
NEW_CREDENTIAL = (
    events.RetryScheduled(attempt=1, cause="credential", error="refused", **CALL),
    events.GateOpened(kind=GateKind.HOLD, terms=None, **HOLD),
    events.GateDecided(verdict=Verdict.CONTINUE, by="bea", reason="", **HOLD),
    events.ToolStarted(attempt=2, at=AT, **CALL),
    replace(RETURNED, attempt=2),
)


@pytest.mark.parametrize(
    "happened",
    [
        (*STARTED, RETURNED, replied(output={"sum": 3}, output_kept=True)),
        (*STARTED, UNKNOWN, LATE, replied()),
        (*STARTED, UNKNOWN, replace(LATE, stored=None, result={"ok": True}), replied()),
        (*STARTED[:3], READ_ONLY, STARTED[-1], CHANGED, RETURNED, replied()),
        (*STARTED, *NEW_CREDENTIAL, replied()),
    ],
    ids=[
        "typed result",
        "late stored result",
        "late result",
        "running call of a new write",
        "replaced credential",
    ],
)
def test_what_no_walk_has_is_read_too(happened: tuple[Event, ...]) -> None:
    now, texts = run_of(*happened)
    assert decoded(stored(read(texts).shorten_continuation(now)), texts) == now


@pytest.mark.parametrize(
    "event",
    [
        events.Imported(by="eve", manifest="{}", key="k", signature="00"),
        events.Forked(of=UUID(int=2), position=1, by="eve", state={}),
        events.Compacted(frame="0", until=2, summary="so far", by="author", usage={}),
    ],
    ids=lambda event: event.type,
)
def test_parts_missing_from_the_entries_are_not_omitted(event: Event) -> None:
    now, texts, _ = small()
    several = codec.encode_entry(Entry(at=AT, events=(event, MESSAGE)))
    assert read([*texts, several]).shorten_continuation(now) is None


def test_a_state_that_its_entries_do_not_tell_is_not_left_out() -> None:
    now, texts, _ = small()
    other, _ = run_of(*STARTED, replace(RETURNED, result="other"))
    assert read(texts).shorten_continuation(other) is None
    assert read(texts[:-1]).shorten_continuation(now) is None
    assert read(texts[:1]).shorten_continuation(now) is None
    for text in ("", '{"schema":1}', '{"schema":1,"events":[{}]}', "[1]"):
        assert read([*texts, text]).shorten_continuation(now) is None


def test_entries_with_other_messages_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do in a release that reads an event in another way."""
    now, texts, text = small()
    monkeypatch.setattr(continuations, "call_after", lambda call, _: call)
    assert read(texts).restore(now, {"0": (3, 0)}) is None
    assert decoded(text, texts) == now


@pytest.mark.parametrize(
    "told", [{"0": (2, 0)}, {"0": (3, 1)}, {"0": (3, 0), "0.c1.0": (1, 0)}, {}], ids=str
)
def test_another_number_of_messages_or_frames_is_not_restored(told: dict[str, Any]) -> None:
    now, texts, _ = small()
    assert read(texts).restore(now, told) is None


@pytest.mark.parametrize("count", [0, 3, len(STARTED) + 2])
def test_only_entries_that_were_not_read_before_are_read(count: int) -> None:
    """All of them again, if it has read more than the continuation is of."""
    now, texts, text = small()
    found = read([*texts, *texts_of([MESSAGE])][:count])
    seen: list[int] = []

    def text_of(position: int) -> str:
        seen.append(position)
        return texts[position - 1]

    assert continuations.decode_continuation(text, text_of, found) == now
    assert seen == list(range(count % (len(texts) + 1) + 1, len(texts) + 1))
    assert found.position == len(texts)


def test_without_its_entries_it_is_not_read() -> None:
    _, texts, text = small()
    with pytest.raises(Unreadable, match="lack its omitted parts"):
        continuations.decode_continuation(text)
    with pytest.raises(Unreadable, match="lack its omitted parts"):
        continuations.decode_continuation(text, lambda _: texts[0])
    newer = [*texts[:2], texts[2].replace('{"schema":1', '{"schema":2'), *texts[3:]]
    assert not read(newer).is_complete
    with pytest.raises(NewerSchema):
        decoded(text, newer)
