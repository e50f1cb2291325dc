"""Results that are stored by their hash: extraction, references, and the text for a model."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.continuation import Call, Continuation
from runtime.core.documents.blobs import (
    Blob,
    InlinedMessages,
    blob_refs,
    digest_of,
    extract_blob,
    value_of,
)
from runtime.core.enums import Verdict
from runtime.core.errors import Unreadable
from runtime.core.events import BlobRef, Event, Exported, GateDecided, ToolReturned, WaitEnded
from runtime.core.limits import KEPT_INLINE, PREVIEW
from tests.core.machine.events import frame_of

LARGEST = "x" * (KEPT_INLINE - 2)  # with its quotes


def returned(result: Any) -> ToolReturned:
    return ToolReturned(frame="0", call="c1.0", attempt=1, result=result)


@pytest.mark.parametrize(
    "event",
    [
        returned(None),
        returned("small"),
        returned(LARGEST),
        WaitEnded(frame="0", call=None),
        WaitEnded(frame="0", call="c1.0", result=LARGEST + "more"),
        Exported(by="eve"),
    ],
    ids=["nothing", "small", "at the limit", "no result", "another's result", "no place for one"],
)
def test_small_values_stay_in_their_event(event: Event) -> None:
    assert extract_blob(event) == (event, None)


@pytest.mark.parametrize("decided", [False, True])
def test_a_result_over_the_limit_is_set_aside_and_found_again(decided: bool) -> None:
    value = {"x": LARGEST}
    event: Event = returned(value)
    if decided:
        event = GateDecided(
            gate=UUID(int=1),
            frame="0",
            call="c1.0",
            verdict=Verdict.HAPPENED,
            by="bea",
            reason="",
            result=value,
        )
    kept, content = extract_blob(event)
    assert content is not None
    assert isinstance(kept, ToolReturned | GateDecided)
    assert kept.result is None
    text = '{"x":"' + LARGEST + '"}'
    assert content == Blob(digest=digest_of(text), text=text)
    assert kept.stored == BlobRef(digest=content.digest, size=len(text), preview=text[:PREVIEW])
    assert value_of(content) == value


def test_blobs_are_compact_json() -> None:
    whole = [1] * (KEPT_INLINE // 2 - 1)  # with commas and brackets one byte below the limit
    assert extract_blob(returned(whole))[1] is None
    _, content = extract_blob(returned({"list": whole, "more": 1}))
    assert content is not None
    assert content.text.startswith('{"list":[1,1,')
    assert content.text.endswith(',1],"more":1}')


def test_values_that_are_not_json_stay_in_their_event() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        extract_blob(returned([LARGEST, float("nan")]))


def test_a_digest_is_that_of_the_bytes() -> None:
    assert digest_of("[]") == (
        "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
    )


def test_a_blob_with_another_digest_is_refused() -> None:
    with pytest.raises(Unreadable):
        value_of(Blob(digest=digest_of("1"), text="2"))


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


def test_only_calls_and_messages_refer_to_blobs() -> None:
    call = Call(id="c2.0", tool="t", args={}, stored=BlobRef(digest="d2", size=1, preview=""))
    other = Call(id="c2.1", tool="t", args={})
    frame = frame_of(messages=MESSAGES, calls=(call, other))
    now = Continuation(run=UUID(int=1), frames={"0": frame})
    assert blob_refs(now) == {"d1", "d2"}


def test_a_model_hears_every_result_as_if_it_had_never_been_away() -> None:
    asked: list[str] = []

    def fetch(digest: str) -> str:
        asked.append(digest)
        return "the value"

    filled = InlinedMessages(fetch)
    frame = frame_of(messages=MESSAGES)
    first, second = filled.messages(frame)
    assert first == MESSAGES[0]
    assert second == {
        "role": "results",
        "results": [
            {"call": "c1.0", "content": "the value"},
            {"call": "c1.1", "content": {"stored": {"digest": "a tool's own"}}},
        ],
    }
    assert asked == ["d1"]

    longer = replace(frame, messages=(*MESSAGES, {"role": "input", "content": "more"}))
    assert filled.messages(longer) == (first, second, {"role": "input", "content": "more"})
    assert asked == ["d1"], "values filled in before are not fetched again"

    summary = {"role": "summary", "content": "so far"}
    summed_up = replace(frame, messages=(longer.messages[0], summary, longer.messages[2]))
    assert filled.messages(summed_up) == summed_up.messages
