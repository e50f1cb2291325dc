"""Isolates runs that may kill their workers, and quarantines those that do.

Every run in a process that dies loses its worker. A run is suspected if one of its running calls is repeated without
asking a person, or if it lost two workers at one position. A suspected run is tried alone in a process. If it makes
progress there, it is an ordinary run again. If it costs that process its life ABEYANCE_POISON_LOSSES times in a row,
it is quarantined.

Two lost workers prove little about a run that was one of many in both, as runs are that wait for slow models. So only
a few of the runs that one worker lost are suspected at a time: 4 after two lost workers, and twice as many after each
further loss. So the run that kills its workers, among n runs, is tried alone after about log2(n) deaths.
"""

from collections.abc import Callable

from django.conf import settings

from runtime.core.continuation import CallState, Continuation
from runtime.core.effect_classes import RULES
from runtime.store.leases import Claim

AT_ONE_POSITION = 2


def should_isolate(
    claim: Claim, now: Continuation | None = None, *, suspects: Callable[[], int]
) -> bool:
    """Return whether a process without other runs should advance this run. Without `now` only lost leases count.

    `suspects` returns how many runs of the same lost worker are suspected already.
    """
    if claim.isolated or not claim.lost_leases:
        return False
    if now is not None and _starts_again(now):
        return True
    return claim.lost_leases >= AT_ONE_POSITION and suspects() < 2**claim.lost_leases


def quarantine_reason(claim: Claim) -> str | None:
    """Return why an isolated run is quarantined, or None if it is tried again."""
    if not claim.isolated or claim.lost_leases < settings.ABEYANCE_POISON_LOSSES:
        return None
    return (
        f"{claim.lost_leases} workers in a row died or lost it while they had no other run,"
        f" the last one at position {claim.position}"
    )


def _starts_again(now: Continuation) -> bool:
    """Return whether a running call would be repeated without asking a person."""
    return any(
        call.state is CallState.STARTED
        and call.terms is not None
        and RULES[call.terms.effect].repeats_unasked
        for frame in now.frames.values()
        for call in frame.calls
    )
