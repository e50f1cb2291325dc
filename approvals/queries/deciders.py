"""Reads who could decide: the people with a right to decide, and those of them who may still vote on a request."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from django.utils import timezone

from approvals.models import Request
from approvals.permissions import principals, request_rules
from approvals.permissions.principals import Principal
from approvals.policies import escalation, tally
from approvals.policies.rules import Policy, demands_of
from approvals.policy import DECIDING
from runtime.core.enums import GateKind
from runtime.ports.access import Actor
from runtime.store import pool

_NEVER = datetime.max.replace(tzinfo=UTC)
MAX_PEOPLE = 500  # more are not looked at: then there are enough

_PEOPLE = f"""
    SELECT p.username, clock_timestamp(), {principals.credentials_sql("p.username")} FROM (
        SELECT DISTINCT u.username FROM auth_user u JOIN auth_user_groups m ON m.user_id = u.id
            JOIN auth_group g ON g.id = m.group_id
        WHERE u.is_active AND g.name = ANY(%(groups)s) ORDER BY u.username LIMIT {MAX_PEOPLE}) p
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Who could still decide a pending request: now, in any stage (`able`), and whether they suffice."""

    people: tuple[str, ...]
    suffice: bool
    able: tuple[str, ...] = ()


def deciders() -> tuple[Principal, ...]:
    """Return the active people with a right to decide, by name."""
    with pool.in_transaction() as connection:
        rows = connection.execute(_PEOPLE, {"groups": sorted(DECIDING)}).fetchall()
    found = [_principal(*row) for row in rows]
    return tuple(one for one in found if one is not None)


def outlook(
    row: Request,
    people: Iterable[Principal],
    at: datetime | None = None,
    votes: Mapping[str, int] | None = None,
) -> Outlook:
    """Return who of these people could decide a request at a time, by default now, and whether they suffice in time.

    People of later steps of escalation suffice too, and those whose cooling-off period ends before the deadline. A
    gate that is no approval needs one person.
    """
    at = at or timezone.now()
    demands = demands_of(row.rule)
    if votes is None:
        votes = dict(row.votes.values_list("person", "stage")) if demands is not None else {}
    end = row.expires_at or _NEVER
    able, later = (_able(row, people, votes, moment) for moment in (at, end))
    if demands is None:
        return Outlook(people=tuple(able), suffice=bool(later), able=tuple(able))
    stages = escalation.stages(demands, row.expires_at, at)
    stage = tally.current(stages, votes)
    now = [
        name for name, groups in able.items() if stage is None or stages[stage].admits(name, groups)
    ]
    if row.kind == GateKind.APPROVAL:
        last = escalation.stages(demands, row.expires_at, end)
        suffice = tally.can_complete(last, votes, later)
    else:
        suffice = bool(later)
    return Outlook(people=tuple(now), suffice=suffice, able=tuple(able))


def _able(
    row: Request, people: Iterable[Principal], votes: Mapping[str, int], at: datetime
) -> dict[str, Collection[str]]:
    """Return the people who may decide at a time and have not voted, with their groups."""
    found = dict[str, Collection[str]]()
    for one in people:
        cooled = one.cooling_until is not None and one.cooling_until < at
        then = replace(one, cooling_until=None) if cooled else one
        if one.person not in votes and request_rules.denial(then, row, at=at) is None:
            found[one.person] = one.groups
    return found


def impossible(policy: Policy, people: Iterable[Principal]) -> str | None:
    """Name the first rule that too few people could ever meet; None if all can be met.

    A run's requester cannot decide, so where one of these people may start runs, one more is needed than the quorum.
    That is not counted here: it depends on the run, and the request warns.
    """
    groups = {one.person: one.groups for one in people}
    for rule in policy.rules:
        named = {name for stage in rule.stages for name in stage.people}
        named |= {name for step in rule.escalate for name in step.people}
        if unknown := sorted(named - set(groups)):
            return f"the rule {rule.name} names {unknown[0]}, who may not decide"
        if not tally.can_complete(rule.stages, {}, groups):
            needed = sum(stage.quorum for stage in rule.stages)
            return (
                f"the rule {rule.name} needs {needed} people, but too few may approve in its stages"
            )
    return None


def _principal(username: str, at: datetime, held: str | None) -> Principal | None:
    return principals.from_rights(Actor(person=username), held, at)
