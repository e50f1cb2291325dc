"""Runs that cost workers their life: whom to suspect, where to try them, and when to give up.

Every run in a process that dies loses its worker. Suspected are those whose tools were under way and are
started again on their own, and those that lost two workers at one position. A suspect goes to a process
that has no other run. What gets on there is an ordinary run again; what costs that process its life
ABEYANCE_POISON_LOSSES times in a row is quarantined.

Losing two workers proves little about a run that was one of many in both, as runs are that wait for slow models. So of
the runs that one worker lost only a few are suspected at a time: 4 of those that lost two workers, and twice as many
after each further loss. So the run that kills its workers, among n runs, is tried alone after about log2(n) deaths,
and the others are not all tried alone because of it.
"""

from collections.abc import Callable

from django.conf import settings

from runtime.core.continuation import CallState, Continuation
from runtime.core.decisions import EffectClass
from runtime.store.leases import Claim

AT_ONE_POSITION = 2


def is_suspect(
    claim: Claim, now: Continuation | None = None, *, suspects: Callable[[], int]
) -> bool:
    """Whether this run goes to a process of its own. Without `now` only the number of losses counts.

    `suspects` returns how many of the runs that the same worker lost are suspected already.
    """
    if claim.isolated or not claim.losses:
        return False
    if now is not None and _starts_again(now):
        return True
    return claim.losses >= AT_ONE_POSITION and suspects() < 2**claim.losses


def verdict(claim: Claim) -> str | None:
    """Why an isolated run is quarantined, None if it is tried again."""
    if not claim.isolated or claim.losses < settings.ABEYANCE_POISON_LOSSES:
        return None
    return (
        f"{claim.losses} workers in a row died or lost it while they had no other run,"
        f" the last one at position {claim.position}"
    )


def _starts_again(now: Continuation) -> bool:
    """Whether a call is under way that nobody is asked about before it is started again."""
    return any(
        call.state is CallState.STARTED
        and call.terms is not None
        and call.terms.effect is not EffectClass.WRITE
        for frame in now.frames.values()
        for call in frame.calls
    )
