"""Lists the changes of agents for which runs wait at version gates, and verifies an admin's decision on one.

A decision names both versions by their fingerprints, which are digests of the definitions, so it covers no other
change. It counts for a run as a decision at the run's own version gate would: not for a run of the admin's own, and
only while the admin may still decide. It names the number of withdrawals before it, and counts until there is another
one. So a copy of an earlier decision does not count.
"""

import json
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from approvals import clock
from approvals.models import Approval, VersionDecision, VersionWithdrawal
from approvals.rights import approval_rights, principals
from approvals.rules.policy_text import MAX_UNDO
from approvals.signed import rows as signed_rows
from runtime.core.run.continuation import merge_people
from runtime.core.values.enums import GateKind, Risk
from runtime.errors import Forbidden
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads.version_diff import VersionDifference, list_differences
from runtime.store import pool

MOST = 5_000  # version gates that are read
DECIDED = 50  # decisions that are listed
RECENT = 20  # decisions on one pair that are tried, as by a worker
_WITHDRAWALS = """(SELECT count(*) FROM approvals_versionwithdrawal w
    WHERE w.agent = d.agent AND w.before = d.before AND w.after = d.after)"""
# The latest rows on each pair that no withdrawal followed, as many as a worker tries. One that does not verify is none.
_COUNTING = f"""
    SELECT * FROM (
        SELECT d.*, row_number() OVER (PARTITION BY agent, before, after ORDER BY id DESC) AS place
        FROM approvals_versiondecision d
        WHERE d.withdrawn = {_WITHDRAWALS}
    ) latest WHERE place <= {RECENT} ORDER BY id DESC LIMIT {DECIDED * RECENT}
"""
_OF_PAIR = f"""
    SELECT d.* FROM approvals_versiondecision d
    WHERE d.agent = %s AND d.before = %s AND d.after = %s AND d.withdrawn {{}} {_WITHDRAWALS}
    ORDER BY d.id DESC LIMIT {RECENT}
"""
log = logging.getLogger(__name__)
_NAMES = (*VersionDecision.SIGNED_FIELDS, "signature", "key_id")
_READ = f"""
    SELECT coalesce((SELECT origin FROM runtime_run WHERE id = %(run)s), '[]'::jsonb),
        {principals.build_credentials_sql("d.by")}, {", ".join(f"d.{name}" for name in _NAMES)}
    FROM approvals_versiondecision d
    WHERE d.agent = %(agent)s AND d.before = %(before)s AND d.after = %(after)s
        AND d.withdrawn = {_WITHDRAWALS}
    ORDER BY d.id DESC LIMIT {RECENT}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPair:
    """Two versions of an agent, by their fingerprints."""

    agent: str
    before: str
    after: str


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
        return sum(not run.refusal for run in self.runs)

    @property
    def refused_runs(self) -> tuple[WaitingRun, ...]:
        """The runs that another person must decide."""
        return tuple(run for run in self.runs if run.refusal)


def list_waiting(principal: principals.Principal | None) -> tuple[WaitingPair, ...]:
    """List the pairs, the one with the most runs first, as this reader may decide them."""
    runs_by_pair: dict[VersionPair, list[WaitingRun]] = {}
    for pair, approval in _read_pending_pairs():
        runs_by_pair.setdefault(pair, []).append(_build_waiting_run(approval, principal))
    pairs = [_build_waiting_pair(pair, runs) for pair, runs in runs_by_pair.items()]
    return tuple(sorted(pairs, key=lambda waiting: (-waiting.count, waiting.pair.agent)))


def find(pair: VersionPair, principal: principals.Principal | None) -> WaitingPair | None:
    """Return this pair, None if no run waits for it."""
    runs = [
        _build_waiting_run(approval, principal)
        for other, approval in _read_pending_pairs()
        if other == pair
    ]
    return _build_waiting_pair(pair, runs) if runs else None


def count_withdrawals(pair: VersionPair) -> int:
    """Count the withdrawals of decisions on this pair."""
    of = VersionWithdrawal.objects.filter(agent=pair.agent, before=pair.before, after=pair.after)
    return of.count()


def list_latest_decisions() -> tuple[VersionDecision, ...]:
    """List the latest DECIDED decisions that count for runs which reach their change later, the latest first."""
    decisions: dict[tuple[str, str, str], VersionDecision] = {}
    for decision in _read_decisions(_COUNTING):
        decisions.setdefault((decision.agent, decision.before, decision.after), decision)
    return tuple(decisions.values())[:DECIDED]


def find_decision(pair: VersionPair) -> VersionDecision | None:
    """Return the decision on this pair that counts, None without one."""
    return next(iter(list_counting_decisions(pair)), None)


def list_counting_decisions(pair: VersionPair) -> list[VersionDecision]:
    """List the latest decisions on this pair that no withdrawal followed, the latest first."""
    return _list_pair_decisions(pair, "=")


def to_undo(pair: VersionPair) -> dict[UUID, VersionDecision]:
    """Return the requests at gates of this pair whose decision can still be undone, each with the decision.

    That is one of those that count, or without any one of those that were withdrawn.
    """
    decisions = list_counting_decisions(pair) or _list_pair_decisions(pair, "<")
    decision_by_gate = {}
    for decision in decisions:
        rows = Approval.objects.filter(
            decided_by=decision.by,
            decided_at__gte=decision.at,
            effective_at__gt=clock.read_time(),
            kind=GateKind.VERSION,
            status=Approval.Status.APPROVED,
            reason=decision.reason,
        )
        for approval in rows.order_by("-decided_at", "-id"):
            if _decode_pair(approval) == pair:
                decision_by_gate[approval.id] = decision
    return decision_by_gate


def list_half_withdrawn() -> tuple[VersionDecision, ...]:
    """List the withdrawn decisions whose withdrawal passed busy runs, as long as another one can reach these."""
    now = clock.read_time()
    rows = Approval.objects.filter(
        effective_at__gt=now,
        decided_at__gt=now - timedelta(seconds=MAX_UNDO),
        kind=GateKind.VERSION,
        status=Approval.Status.APPROVED,
    )
    pairs = dict.fromkeys(map(_decode_pair, rows.order_by("-decided_at", "-id")[:MOST]))
    undoable = [
        to_undo(pair) for pair in pairs if pair is not None and not list_counting_decisions(pair)
    ]
    decisions = []
    for gates in filter(None, undoable):
        decision = next(iter(gates.values()))
        decision.busy_runs = len(gates)
        decisions.append(decision)
    return tuple(decisions)


def _list_pair_decisions(pair: VersionPair, compared: str) -> list[VersionDecision]:
    parameters = (pair.agent, pair.before, pair.after)
    return list(_read_decisions(_OF_PAIR.format(compared), *parameters))


def _read_decisions(sql: str, *parameters: object) -> Iterator[VersionDecision]:
    return filter(signed_rows.is_valid, VersionDecision.objects.raw(sql, parameters))


def count() -> int:
    """Count the version gates that wait for a person."""
    return _select_pending().count()


def _select_pending() -> QuerySet[Approval]:
    return Approval.objects.filter(status=Approval.Status.PENDING, kind=GateKind.VERSION)


def _read_pending_pairs() -> Iterator[tuple[VersionPair, Approval]]:
    """Read the pending requests; those whose pair cannot be read are decided on their own pages."""
    for approval in _select_pending().order_by("created_at", "id")[:MOST]:
        pair = _decode_pair(approval)
        if pair is not None:
            yield pair, approval


def _decode_pair(approval: Approval) -> VersionPair | None:
    try:
        args: dict[str, Any] = json.loads(approval.args)
        pair = VersionPair(agent=args["agent"], before=args["before"], after=args["after"])
    except (ValueError, KeyError, TypeError):
        return None
    fields = (pair.agent, pair.before, pair.after)
    return pair if all(isinstance(field, str) for field in fields) else None


def _build_waiting_run(approval: Approval, principal: principals.Principal | None) -> WaitingRun:
    denial = approval_rights.find_denial(principal, approval)
    return WaitingRun(
        approval_id=approval.id,
        run=approval.run_id,
        digest=approval.approval_digest,
        requester=approval.requester,
        refusal=denial.detail if denial else "",
    )


def _build_waiting_pair(pair: VersionPair, runs: list[WaitingRun]) -> WaitingPair:
    changes = wiring.resolve_catalogue().list_changes(pair.agent, pair.before, pair.after)
    waiting = WaitingPair(
        pair=pair,
        runs=tuple(runs),
        differences=None if changes is None else list_differences(changes),
    )
    last = find_decision(pair)
    return waiting if last is None else replace(waiting, decided_by=last.by, decided_at=last.at)


def find_decider(
    *, run: UUID, agent: str, before: str, after: str, requester: str, origin: Collection[str]
) -> str | None:
    """Return the admin whose decision on this pair counts for this run, None without one.

    A row that does not verify is no decision: then people are asked. `origin` is by the journal. The run's row also
    names the people whose signals wait there.
    """
    parameters = {"run": run, "agent": agent, "before": before, "after": after}
    with pool.join_transaction() as connection:
        rows = connection.execute(_READ, parameters).fetchall()
    for steered, rights, *values in rows:
        row = VersionDecision(**dict(zip(_NAMES, values, strict=True)))
        at = row.at if isinstance(row.at, datetime) else None
        if at is None or not signed_rows.is_valid(row):
            log.error("A decision on versions of %s is not the one that was signed", row.agent)
            continue
        principal = principals.restore_principal(
            Actor(person=row.by), rights, signed_rows.to_utc(at), past=True
        )
        people = merge_people(origin, signed_rows.select_texts(steered))
        if find_refusal(principal, requester=requester, origin=people) is None:
            return row.by
    return None


def find_refusal(
    principal: principals.Principal | None, *, requester: str = "", origin: Collection[str] = ()
) -> Forbidden | None:
    """Say why this person may not decide the changes of such a run, by the rules of a version gate; None if they may.

    Raises nothing. Without `requester` only the person's own rights are checked.
    """
    if principal is not None and not principal.has(principals.Scope.ADMIN):
        return Forbidden("not_eligible", f"{principal.person} is no admin.")
    approval = Approval(
        kind=GateKind.VERSION,
        risk=Risk.HIGH,
        requester=requester,
        origin=[*origin],
        excluded=[*origin],
        rule=None,
    )
    return approval_rights.find_denial(principal, approval)
