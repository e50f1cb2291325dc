"""The origin of a run: the people who started or steered it. They cannot decide in it.

It holds the requester, the people who made the schedule that started it, the senders of messages and events that a
worker received, and the people who tried the run again after a failure. For a forked or imported run it also holds that
person, and the origin of the run before. It is folded from the journal, so the journal's MACs cover it.

A reviewer who wrote to the run, as the rule of a request allows, is in the origin of each gate that opens afterwards,
because their message may have led to it. They are kept apart, because it has not led to the gates that were open.
"""

from collections.abc import Iterable
from itertools import chain

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
