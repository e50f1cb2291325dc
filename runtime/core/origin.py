"""The people a run comes from: its requester, and everyone who steered it since. None of them decides in it.

They are the person who started it, the requester of the run it was forked or imported from, the person who forked or
imported it, the senders of messages and events that it took up, and the person who retried it after it failed. The
list is folded from the journal, so it is signed as the journal is.
"""

from collections.abc import Iterable
from typing import Any

from runtime.core.continuation import Continuation
from runtime.core.replacing import replace


def merged(*groups: Iterable[str]) -> tuple[str, ...]:
    """Everybody of these groups once, in the order in which they came."""
    return tuple(dict.fromkeys(person for group in groups for person in group if person))


def joined(now: Continuation, *people: str) -> Continuation:
    """With these people among those the run comes from."""
    origin = merged(now.origin, people)
    return now if origin == now.origin else replace(now, origin=origin)


def of_document(document: dict[str, Any]) -> list[str]:
    """The people of a continuation stored before it named them: its requester and the senders of its messages."""
    frames = document.get("frames")
    root = frames.get("0") if isinstance(frames, dict) else None
    messages = root.get("messages") if isinstance(root, dict) else None
    spoken = [*_dicts(messages), *_dicts(document.get("unheard"))]
    found = [document.get("requester"), *(one.get("by") for one in spoken)]
    return list(merged(person for person in found if isinstance(person, str)))


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
