"""Results that are stored by their hash: extraction, references, and the text for a model."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.documents import blobs
from runtime.core.documents.codec import replace_unencodable
from runtime.core.run.continuation import Call, Continuation
from runtime.core.run.events import (
    BlobRef,
    CallAdmitted,
    Event,
    Exported,
    GateDecided,
    ToolFailed,
    ToolReturned,
    WaitEnded,
)
from runtime.core.values.enums import EffectClass, Verdict
from runtime.core.values.errors import Unreadable
from runtime.core.values.limits import KEPT_INLINE, PREVIEW
from tests.core.run.events import STARTED, after, frame_of, options

CALL: dict[str, Any] = {"frame": "0", "call": "c1.0"}
LARGEST = "x" * (KEPT_INLINE - 2)  # with its quotes
HAPPENED = GateDecided(gate=UUID(int=1), verdict=Verdict.HAPPENED, by="bea", reason="", **CALL)
MESSAGES = (
    {"role": "input", "content": "go"},
    {
        "role": "results",
        "results": [
            {"call": "c1.0", "content": None, "stored": {"digest": "d1", "size": 9}},
            {"call": "c1.1", "content": {"stored": {"digest": "a tool's own"}}},
        ],
    },
)


def returned(result: Any) -> ToolReturned:
    return ToolReturned(attempt=1, result=result, **CALL)


@pytest.mark.parametrize(
    "event",
    [
        returned(None),
        returned(LARGEST),
        WaitEnded(frame="0", call=None),
        WaitEnded(result=LARGEST + "more", **CALL),
        Exported(by="eve"),
    ],
    ids=["nothing", "at the limit", "no result", "another's result", "no place for one"],
)
def test_small_values_stay_in_their_event(event: Event) -> None:
    assert blobs.extract_blob(event) == (event, None)


@pytest.mark.parametrize("event", [returned(None), HAPPENED])
def test_a_result_over_the_limit_is_set_aside(event: ToolReturned | GateDecided) -> None:
    value = {"x": LARGEST, "y": 1}
    kept, blob = blobs.extract_blob(replace(event, result=value))
    text = '{"x":"' + LARGEST + '","y":1}'
    assert blob == blobs.Blob(digest=blobs.hash_text(text), text=text)
    stored = BlobRef(digest=blob.digest, size=len(text), preview=text[:PREVIEW])
    assert kept == replace(event, stored=stored)
    assert blobs.decode_blob(blob) == value
    with pytest.raises(Unreadable):
        blobs.decode_blob(replace(blob, text="2"))


@pytest.mark.parametrize("above", [None, len(LARGEST), KEPT_INLINE + 1, KEPT_INLINE])
def test_a_result_above_the_given_size_is_for_the_object_store(above: int | None) -> None:
    kept, blob = blobs.extract_blob(returned(LARGEST + "x"), outside_above=above)
    assert blob is not None
    assert isinstance(kept, ToolReturned)
    assert kept.stored is not None
    outside = above is not None and above < KEPT_INLINE + 1
    assert (blob.outside, kept.stored.outside) == (outside, outside)


def test_only_calls_and_messages_refer_to_blobs() -> None:
    call = Call(id="c2.0", tool="t", args={}, stored=BlobRef(digest="d2", size=1, preview=""))
    frame = frame_of(messages=MESSAGES, calls=(call, replace(call, stored=None)))
    assert blobs.collect_blob_refs(Continuation(run=UUID(int=1), frames={"0": frame})) == {
        "d1",
        "d2",
    }


def test_a_model_hears_every_result_as_if_it_had_never_been_away() -> None:
    asked: list[str] = []

    def fetch(digest: str) -> str:
        asked.append(digest)
        return "the value"

    filled = blobs.InlinedMessages(fetch)
    frame = frame_of(messages=MESSAGES)
    first, second = filled.inline_messages(frame)
    assert first == MESSAGES[0]
    assert second == {
        "role": "results",
        "results": [
            {"call": "c1.0", "content": "the value"},
            {"call": "c1.1", "content": {"stored": {"digest": "a tool's own"}}},
        ],
    }
    longer = replace(frame, messages=(*MESSAGES, {"role": "input", "content": "more"}))
    assert filled.inline_messages(longer) == (first, second, {"role": "input", "content": "more"})
    assert asked == ["d1"], "values filled in before are not fetched again"

    summary = {"role": "summary", "content": "so far"}
    summed_up = replace(frame, messages=(longer.messages[0], summary, longer.messages[2]))
    assert filled.inline_messages(summed_up) == summed_up.messages


@pytest.mark.parametrize("effect", [None, *EffectClass])
def test_a_lost_result_fails_unless_the_call_has_happened(effect: EffectClass | None) -> None:
    admitted = [CallAdmitted(terms=options(effect), **CALL), STARTED[-1]] if effect else []
    event = replace_unencodable(after(STARTED[2], *admitted), returned("\ud800"))
    happened = effect in (EffectClass.IDEMPOTENT, EffectClass.WRITE)
    assert isinstance(event, ToolReturned if happened else ToolFailed)


def test_an_event_that_can_be_kept_is_kept() -> None:
    event = returned("a result")
    assert replace_unencodable(after(), event) is event
