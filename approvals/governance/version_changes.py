"""Lists the changes of agents for which runs wait at version gates, each pair of versions once with its runs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from approvals import clock
from approvals.models import Approval, VersionDecision, VersionWithdrawal
from approvals.rights import approvals
from approvals.rights.principals import Principal
from approvals.rules.policy_text import MAX_UNDO
from approvals.signed import rows as signed_rows
from runtime.core.values.enums import GateKind
from runtime.ports import wiring
from runtime.reads.version_diff import VersionDifference, differences

MOST = 5_000  # version gates that are read
DECIDED = 50  # decisions that are listed
RECENT = 20  # decisions on one pair that are tried, as by a worker

# The latest rows on each pair that no withdrawal followed, as many as a worker tries. One that does not verify is none.
_COUNTING = f"""
    SELECT * FROM (
        SELECT d.*, row_number() OVER (PARTITION BY agent, before, after ORDER BY id DESC) AS place
        FROM approvals_versiondecision d
        WHERE d.withdrawn = (SELECT count(*) FROM approvals_versionwithdrawal w
            WHERE w.agent = d.agent AND w.before = d.before AND w.after = d.after)
    ) latest WHERE place <= {RECENT} ORDER BY id DESC LIMIT {DECIDED * RECENT}
"""
_OF_PAIR = f"""
    SELECT d.* FROM approvals_versiondecision d
    WHERE d.agent = %s AND d.before = %s AND d.after = %s AND d.withdrawn {{}}
        (SELECT count(*) FROM approvals_versionwithdrawal w
            WHERE w.agent = d.agent AND w.before = d.before AND w.after = d.after)
    ORDER BY d.id DESC LIMIT {RECENT}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPair:
    """Two versions of an agent, by their fingerprints."""

    agent: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDecision:
    """A decision on a pair. `count` runs waited when it was made.

    `left` runs of a withdrawn one were busy: they still continue, and their decision can still be undone.
    """

    id: int
    agent: str
    before: str
    after: str
    by: str
    reason: str
    count: int
    at: datetime
    left: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRun:
    """One run at a version gate. `refusal` says why the reader may not decide it, empty if they may."""

    approval_id: UUID
    run: UUID
    digest: str
    requester: str
    refusal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPair:
    """A pair with its waiting runs, oldest first. `differences` are None if a version was never published.

    `decided_by` made the decision on it that counts, None without one.
    """

    pair: VersionPair
    runs: tuple[WaitingRun, ...]
    differences: tuple[VersionDifference, ...] | None
    decided_by: str | None = None
    decided_at: datetime | None = None

    @property
    def count(self) -> int:
        """The number of waiting runs."""
        return len(self.runs)

    @property
    def decidable(self) -> int:
        """The number of runs that the reader may decide."""
        return sum(not one.refusal for one in self.runs)

    @property
    def others(self) -> tuple[WaitingRun, ...]:
        """The runs that another person must decide."""
        return tuple(one for one in self.runs if one.refusal)


def waiting(principal: Principal | None) -> tuple[WaitingPair, ...]:
    """List the pairs, the one with the most runs first, as this reader may decide them."""
    found: dict[VersionPair, list[WaitingRun]] = {}
    for pair, approval in _rows():
        found.setdefault(pair, []).append(_waiting(approval, principal))
    pairs = [_pair(pair, runs) for pair, runs in found.items()]
    return tuple(sorted(pairs, key=lambda one: (-one.count, one.pair.agent)))


def find(pair: VersionPair, principal: Principal | None) -> WaitingPair | None:
    """Return this pair, None if no run waits for it."""
    runs = [_waiting(approval, principal) for one, approval in _rows() if one == pair]
    return _pair(pair, runs) if runs else None


def withdrawals(pair: VersionPair) -> int:
    """Count the withdrawals of decisions on this pair."""
    of = VersionWithdrawal.objects.filter(agent=pair.agent, before=pair.before, after=pair.after)
    return of.count()


def decided() -> tuple[PairDecision, ...]:
    """List the latest DECIDED decisions that count for runs which reach their change later, the latest first."""
    found: dict[VersionPair, PairDecision] = {}
    for one in _decisions(_COUNTING):
        found.setdefault(VersionPair(agent=one.agent, before=one.before, after=one.after), one)
    return tuple(found.values())[:DECIDED]


def decision(pair: VersionPair) -> PairDecision | None:
    """Return the decision on this pair that counts, None without one."""
    return next(iter(counting(pair)), None)


def counting(pair: VersionPair) -> list[PairDecision]:
    """List the latest decisions on this pair that no withdrawal followed, the latest first."""
    return _of_pair(pair, "=")


def to_undo(pair: VersionPair) -> dict[UUID, PairDecision]:
    """Return the requests at gates of this pair whose decision can still be undone, each with the decision.

    That is one of those that count, or without any one of those that were withdrawn.
    """
    made = counting(pair) or _of_pair(pair, "<")
    return {gate: one for one in made for gate in _not_final(pair, one)}


def half_withdrawn() -> tuple[PairDecision, ...]:
    """List the withdrawn decisions whose withdrawal passed busy runs, as long as another one can reach these."""
    now = clock.now()
    rows = Approval.objects.filter(
        effective_at__gt=now,
        decided_at__gt=now - timedelta(seconds=MAX_UNDO),
        kind=GateKind.VERSION,
        status=Approval.Status.APPROVED,
    )
    pairs = dict.fromkeys(map(_pair_of, rows.order_by("-decided_at", "-id")[:MOST]))
    left = [to_undo(pair) for pair in pairs if pair is not None and not counting(pair)]
    return tuple(replace(next(iter(one.values())), left=len(one)) for one in left if one)


def _of_pair(pair: VersionPair, compared: str) -> list[PairDecision]:
    given = (pair.agent, pair.before, pair.after)
    return list(_decisions(_OF_PAIR.format(compared), *given))


def _decisions(sql: str, *given: object) -> Iterator[PairDecision]:
    return (
        PairDecision(
            id=row.id,
            agent=row.agent,
            before=row.before,
            after=row.after,
            by=row.by,
            reason=row.reason,
            count=row.count,
            at=row.at,
        )
        for row in VersionDecision.objects.raw(sql, given)
        if signed_rows.is_valid(row)
    )


def _not_final(pair: VersionPair, made: PairDecision) -> list[UUID]:
    """List the requests at gates of this pair which the decision decided, and which can still be undone."""
    rows = Approval.objects.filter(
        decided_by=made.by,
        decided_at__gte=made.at,
        effective_at__gt=clock.now(),
        kind=GateKind.VERSION,
        status=Approval.Status.APPROVED,
        reason=made.reason,
    )
    return [
        approval.id
        for approval in rows.order_by("-decided_at", "-id")
        if _pair_of(approval) == pair
    ]


def count() -> int:
    """Count the version gates that wait for a person."""
    return _pending().count()


def _pending() -> QuerySet[Approval]:
    return Approval.objects.filter(status=Approval.Status.PENDING, kind=GateKind.VERSION)


def _rows() -> Iterator[tuple[VersionPair, Approval]]:
    """Read the pending requests; those whose pair cannot be read are decided on their own pages."""
    for approval in _pending().order_by("created_at", "id")[:MOST]:
        pair = _pair_of(approval)
        if pair is not None:
            yield pair, approval


def _pair_of(approval: Approval) -> VersionPair | None:
    try:
        args: dict[str, Any] = json.loads(approval.args)
        pair = VersionPair(agent=args["agent"], before=args["before"], after=args["after"])
    except (ValueError, KeyError, TypeError):
        return None
    named = (pair.agent, pair.before, pair.after)
    return pair if all(isinstance(one, str) for one in named) else None


def _waiting(approval: Approval, principal: Principal | None) -> WaitingRun:
    denial = approvals.denial(principal, approval)
    return WaitingRun(
        approval_id=approval.id,
        run=approval.run_id,
        digest=approval.approval_digest,
        requester=approval.requester,
        refusal=denial.detail if denial else "",
    )


def _pair(pair: VersionPair, runs: list[WaitingRun]) -> WaitingPair:
    changes = wiring.catalogue().changes_between(pair.agent, pair.before, pair.after)
    found = WaitingPair(
        pair=pair,
        runs=tuple(runs),
        differences=None if changes is None else differences(changes),
    )
    last = decision(pair)
    return found if last is None else replace(found, decided_by=last.by, decided_at=last.at)
