"""Reads who could decide: the people with a right to decide, and those of them who may still vote on a request."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from approvals.models import Request
from approvals.permissions import principals, request_rules
from approvals.permissions.principals import Principal
from approvals.policies import tally
from approvals.policies.rules import Policy, Stage, demands_of
from approvals.policy import DECIDING
from runtime.ports.access import Actor
from runtime.store import pool

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


def outlook(row: Request, people: Iterable[Principal]) -> Outlook:
    """Return which of these people could still decide a request. Votes are counted as the row names them."""
    demands = demands_of(row.rule)
    stages = (Stage(),) if demands is None else demands.stages
    votes = dict(row.votes.values_list("person", "stage")) if demands is not None else {}
    able = {
        one.person: one.groups
        for one in people
        if one.person not in votes and request_rules.denial(one, row) is None
    }
    stage = tally.current(stages, votes)
    now = [
        name for name, groups in able.items() if stage is None or stages[stage].admits(name, groups)
    ]
    return Outlook(
        people=tuple(now), suffice=tally.can_complete(stages, votes, able), able=tuple(able)
    )


def impossible(policy: Policy, people: Iterable[Principal]) -> str | None:
    """Name the first rule that too few people could ever meet; None if all can be met.

    A run's requester cannot decide, so where one of these people may start runs, one more is needed than the quorum.
    That is not counted here: it depends on the run, and the request warns.
    """
    groups = {one.person: one.groups for one in people}
    for rule in policy.rules:
        named = {name for stage in rule.stages for name in stage.people}
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
