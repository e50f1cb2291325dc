"""Finds the run that kills its workers among those that they lost, and quarantines it.

Every run in a process that dies loses its worker. One loss proves nothing: any worker resumes the run at once. Two
losses in a row, without a finished effect between, make a run suspected. The process `isolated` tries suspected runs
in groups, each in a process of its own. A run whose effect ends there is an ordinary run again. The runs of a group
that dies are tried again in smaller groups, and after two lost groups alone. A run that costs SIGNOFF_POISON_LOSSES
processes their life alone is quarantined.

So a run that kills its worker costs two workers and two groups of any size; the others of the second group
are tried alone next. The groups are so large that the runs of a full worker are all tried at once: no run waits for
the slow call of another group.
"""

import math
from collections.abc import Sequence

from django.conf import settings

from runtime.store.leases import RunClaim
from runtime.store.suspects import ALONE, GROUPS, Suspect

IN_A_ROW = 2
GATHER_SECONDS = 1.0  # a worker suspects the runs of a dead one one by one, with shorter pauses


def should_isolate(claim: RunClaim) -> bool:
    """Return whether the run is tried in a group instead of in this worker."""
    return not claim.isolated and claim.lost_leases >= IN_A_ROW


def next_group(waiting: Sequence[Suspect], free: int) -> Sequence[Suspect]:
    """Return the suspects to try next in one process: a part of `waiting`, which is in order.

    `free` is how many more processes can be started now. They share the runs that lost as many groups as the first.
    While more runs become suspected none is tried, for three seconds at most: the first ones would take all processes.
    """
    if not waiting or (_are_gathering(waiting) and waiting[0].waits < 3 * GATHER_SECONDS):
        return ()
    lost = waiting[0].losses
    alike = [suspect for suspect in waiting if suspect.losses == lost]
    limit = GROUPS[lost] if lost < ALONE else 1
    return alike[: min(limit, math.ceil(len(alike) / free))]


def quarantine_reason(claim: RunClaim) -> str | None:
    """Return why an isolated run is quarantined, or None if it is tried again."""
    alone = claim.lost_leases - ALONE
    if not claim.isolated or alone < settings.SIGNOFF_POISON_LOSSES:
        return None
    return (
        f"{alone} workers in a row died or lost it while they had no other run,"
        f" the last one at position {claim.position}"
    )


def _are_gathering(waiting: Sequence[Suspect]) -> bool:
    return any(suspect.losses == 0 and suspect.waits < GATHER_SECONDS for suspect in waiting)
