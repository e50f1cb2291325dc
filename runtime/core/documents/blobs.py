"""Texts stored by their hash, apart from the journal: results too large for an entry, and what a run remembers.

The event keeps hash, size and beginning of a result. Events, continuation and messages carry this reference, so they
stay small. Readers look the content up by its hash. A reference has a field of its own, so no value that a tool returns
can pass for one.

The first entry of a run has the digests of the texts of earlier runs that it remembers. So its memory is fixed, and the
journal verifies without the texts. A stored text names the run that it comes from: no two runs share one, and it can be
erased with that run.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from runtime.core.run import events
from runtime.core.run.continuation import Continuation, Frame
from runtime.core.values.errors import Unreadable
from runtime.core.values.ids import ROOT
from runtime.core.values.json_values import is_file
from runtime.core.values.limits import KEPT_INLINE, MAX_REMEMBERED_TEXT, PREVIEW

WITH_CONTENT = (
    events.ToolReturned,
    events.GateDecided,
    events.OutcomeArrived,
    events.MemorySummarised,
)  # events that may have one
Recall = Callable[
    [Sequence[events.Remembered]], Mapping[str, str]
]  # the texts that exist, by digest


def format_memory_text(value: Any) -> str:
    """Return an input or an answer as text, at most MAX_REMEMBERED_TEXT characters of it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_REMEMBERED_TEXT else text[: MAX_REMEMBERED_TEXT - 1] + "…"


def encode_memory(run: UUID, kind: str, text: str) -> str:
    """Return the JSON under whose hash a text of `run` is stored."""
    return json.dumps({"run": str(run), "kind": kind, "text": text}, separators=(",", ":"))


def read_memory(body: str) -> str:
    """Return the text of what `stored` made."""
    text: str = json.loads(body)["text"]
    return text


def describe_memory(
    memory: Sequence[events.Remembered], texts: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """Return the memory as models get it: `text` is None where it was erased."""
    return tuple(
        {
            "run": str(remembered.run),
            "kind": remembered.kind,
            "by": remembered.by,
            "at": remembered.at.isoformat(timespec="seconds"),
            "text": texts.get(remembered.digest),
        }
        for remembered in memory
    )


_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

Messages = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """JSON text and the `sha256:<hex>` of exactly its bytes, which are ASCII. `outside` is for the object store.

    `is_summary` says that it sums up what a run remembers.
    """

    digest: str
    text: str
    outside: bool = False
    is_summary: bool = False


def make_blob(text: str) -> Blob:
    """Return the content of a text."""
    return Blob(digest=hash_text(text), text=text)


def extract_blob(
    event: events.Event, *, outside_above: int | None = None
) -> tuple[events.Event, Blob | None]:
    """Return the event as journaled, and its result if it is a file or exceeds KEPT_INLINE bytes, and is no answer.

    A result above `outside_above` bytes is for the object store; None if there is no store.
    """
    if isinstance(event, events.MemorySummarised):
        summary = Blob(digest=hash_text(event.text), text=event.text, is_summary=True)
        return replace(event, digest=summary.digest, text=""), summary
    if not isinstance(event, WITH_CONTENT) or event.result is None:
        return event, None
    if getattr(event, "answer", False):  # a frame has its answer itself
        return event, None
    text = _compact(event.result)
    is_kept_file = '"base64":' in text and is_file(event.result)
    if len(text) <= KEPT_INLINE and not is_kept_file:
        return event, None
    outside = outside_above is not None and len(text) > outside_above
    content = Blob(digest=hash_text(text), text=text, outside=outside)
    stored = events.BlobRef(
        digest=content.digest, size=len(text), preview=text[:PREVIEW], outside=outside
    )
    return replace(event, result=None, stored=stored), content


def hash_text(text: str) -> str:
    """Return the digest of a text, as `sha256:<hex>`."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def decode_blob(content: Blob) -> Any:
    """Return the value that was stored by its hash. Raises Unreadable if the text does not match the digest."""
    if hash_text(content.text) != content.digest:
        raise Unreadable(f"the content {content.digest} does not match its digest")
    return json.loads(content.text)


def collect_blob_refs(now: Continuation) -> frozenset[str]:
    """Return the digests that the messages and calls of its frames refer to."""
    of_calls = {
        call.stored.digest for frame in now.frames.values() for call in frame.calls if call.stored
    }
    of_messages = {
        result["stored"]["digest"]
        for frame in now.frames.values()
        for message in frame.messages
        for result in message.get("results", ())
        if "stored" in result
    }
    return frozenset(of_calls | of_messages)


def is_earlier_state(first: Messages, messages: Messages) -> bool:
    """Say whether `first` was an earlier state of these messages. None of `first` may be empty.

    Messages are only added to a frame, or a summary replaces those from the second on. So the same objects at the
    ends of `first` mean the same messages in between.
    """
    last = len(first) - 1
    second = min(1, last)
    return (
        last < len(messages)
        and messages[last] is first[last]
        and messages[second] is first[second]
        and messages[0] is first[0]
    )


class InlinedMessages:
    """The messages of a run's frames, with every stored result inlined, and the root's input with its memory.

    `fetch` returns the value of a digest, and `recall` the texts of a memory. Each message is read once, because a
    frame only adds messages.
    """

    def __init__(self, fetch: Callable[[str], Any], recall: Recall = lambda _: {}) -> None:
        self._fetch = fetch
        self._recall = recall
        self._inlined: dict[str, tuple[Messages, Messages]] = {}
        self._memory: Sequence[events.Remembered] = ()  # with which the root's messages were read

    def inline_messages(self, frame: Frame, memory: Sequence[events.Remembered] = ()) -> Messages:
        """Return the frame's messages with their stored results. `memory` is the run's, for its root frame."""
        before, filled = self._inlined.get(frame.id, ((), ()))
        changed = frame.id == ROOT and memory != self._memory
        if not before or changed or not is_earlier_state(before, frame.messages):
            before, filled = (), ()
        filled += tuple(map(self._filled, frame.messages[len(before) :]))
        if not before and memory and frame.id == ROOT:
            filled = (
                {**filled[0], "memory": describe_memory(memory, self._recall(memory))},
                *filled[1:],
            )
        if frame.id == ROOT:
            self._memory = memory
        self._inlined[frame.id] = frame.messages, filled
        return filled

    def _filled(self, message: dict[str, Any]) -> dict[str, Any]:
        # Only results refer, and only in a field beside their content.
        for index, result in enumerate(message.get("results", ())):
            if "stored" in result:
                inlined = {name: value for name, value in result.items() if name != "stored"}
                content = self._fetch(result["stored"]["digest"])
                results = list(message["results"])
                results[index] = {**inlined, "content": content}
                message = {**message, "results": results}
        return message
