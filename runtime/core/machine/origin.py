"""The origin of a run: the people who started or steered it. They cannot decide in it.

It holds the requester, the people who made the schedule that started it, the senders of messages and events that a
worker received, and the people who tried the run again after a failure. For a forked or imported run it also holds that
person, and the origin of the run before. It is folded from the journal, so the journal's MACs cover it.

A reviewer who wrote to the run, as the rule of a request allows, is in the origin of each gate that opens afterwards,
because their message may have led to it. They are kept apart, because it has not led to the gates that were open.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from runtime.core.continuation import Continuation
from runtime.core.fast_replace import replace


def merged(*groups: Iterable[str]) -> tuple[str, ...]:
    """Return each person of these groups once, in order."""
    return tuple(dict.fromkeys(filter(None, chain.from_iterable(groups))))


def joined(now: Continuation, *people: str) -> Continuation:
    """Add these people to the origin."""
    origin = merged(now.origin, people)
    return now if origin == now.origin else replace(now, origin=origin)


def wrote(now: Continuation, reviewer: str) -> Continuation:
    """Keep the name of a reviewer who wrote to the run."""
    return replace(now, reviewers=merged(now.reviewers, [reviewer]))


def steered_by(now: Continuation) -> tuple[str, ...]:
    """Return the people who cannot decide at a gate that opens now: the origin, and reviewers who wrote."""
    return merged(now.origin, now.reviewers) if now.reviewers else now.origin


def of_document(document: dict[str, Any]) -> list[str]:
    """Return the origin for an older continuation that has none: its requester and the senders of its messages."""
    frames = document.get("frames")
    root = frames.get("0") if isinstance(frames, dict) else None
    messages = root.get("messages") if isinstance(root, dict) else None
    spoken = [*_dicts(messages), *_dicts(document.get("unheard"))]
    found = [document.get("requester"), *(one.get("by") for one in spoken)]
    return list(merged(person for person in found if isinstance(person, str)))


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
