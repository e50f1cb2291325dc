"""Results too big for an entry: the event keeps their hash, size and beginning, the content is stored once by it.

Events, continuation and messages carry the reference, so they stay small. Whoever needs the content asks
for it by its hash. A reference is a field of its own: no value that a tool returns can pass for one.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runtime.core.continuation import Continuation, Frame
from runtime.core.errors import Unreadable
from runtime.core.events import BlobRef, Event, GateDecided, OutcomeArrived, ToolReturned
from runtime.core.limits import KEPT_INLINE, PREVIEW

_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

Messages = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """JSON text and the `sha256:<hex>` of exactly its bytes, which are ASCII."""

    digest: str
    text: str


def extract_blob(event: Event) -> tuple[Event, Blob | None]:
    """The event as it is journaled, and the content of its result if that is over KEPT_INLINE bytes."""
    if not isinstance(event, ToolReturned | GateDecided | OutcomeArrived) or event.result is None:
        return event, None
    text = _compact(event.result)
    if len(text) <= KEPT_INLINE:
        return event, None
    content = Blob(digest=digest_of(text), text=text)
    stored = BlobRef(digest=content.digest, size=len(text), preview=text[:PREVIEW])
    return replace(event, result=None, stored=stored), content


def digest_of(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def value_of(content: Blob) -> Any:
    """The value that was set aside. Raises Unreadable unless the text is what the digest says."""
    if digest_of(content.text) != content.digest:
        raise Unreadable(f"the content {content.digest} is not what was stored")
    return json.loads(content.text)


def blob_refs(now: Continuation) -> frozenset[str]:
    """The digests that the messages and calls of its frames refer to."""
    of_calls = {
        call.stored.digest for frame in now.frames.values() for call in frame.calls if call.stored
    }
    of_messages = {
        digest
        for frame in now.frames.values()
        for message in frame.messages
        for digest in _of_message(message)
    }
    return frozenset(of_calls | of_messages)


def begins(first: Messages, messages: Messages) -> bool:
    """Whether a frame's `messages` were once `first`, of which none is empty.

    Messages are only added to a frame, or a summary takes the place of those from the second on. So the same objects
    at these places mean the same ones in between.
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
    """The messages of a run's frames with every result as if it had never been set aside.

    `fetch` gives the value of a digest. Each message is looked at once: its frame only adds to the ones before.
    """

    def __init__(self, fetch: Callable[[str], Any]) -> None:
        self._fetch = fetch
        self._known: dict[str, tuple[Messages, Messages]] = {}

    def messages(self, frame: Frame) -> Messages:
        before, filled = self._known.get(frame.id, ((), ()))
        if not before or not begins(before, frame.messages):
            before, filled = (), ()
        filled += tuple(self._filled(message) for message in frame.messages[len(before) :])
        self._known[frame.id] = frame.messages, filled
        return filled

    def _filled(self, message: dict[str, Any]) -> dict[str, Any]:
        if not _of_message(message):
            return message
        results = [self._inline(result) for result in message["results"]]
        return {**message, "results": results}

    def _inline(self, result: dict[str, Any]) -> dict[str, Any]:
        if "stored" not in result:
            return result
        rest = {name: value for name, value in result.items() if name != "stored"}
        return {**rest, "content": self._fetch(result["stored"]["digest"])}


def _of_message(message: dict[str, Any]) -> Sequence[str]:
    """Only results refer, and only beside their content: what is inside it is the tool's own."""
    if "results" not in message:
        return ()
    return [result["stored"]["digest"] for result in message["results"] if "stored" in result]
