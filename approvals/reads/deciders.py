"""Reads who could decide: the people with a right to decide, those who may still vote on a request, and its votes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from django.utils import timezone

from approvals.models import Approval, Vote
from approvals.reads.approval_views import ApprovalView
from approvals.rights import approval_rights, principals
from approvals.rights.principals import Principal
from approvals.rules import policy, tally
from approvals.rules.policy import DECIDING, GROUP, PERSON, Policy, Stage, decode_demands, list_keys
from runtime.ports.access import Actor
from runtime.store import pool

_NEVER = datetime.max.replace(tzinfo=UTC)
READ = 100  # people of one query

_NAMES = """
    SELECT DISTINCT u.username FROM auth_user u JOIN auth_user_groups m ON m.user_id = u.id
        JOIN auth_group g ON g.id = m.group_id
    WHERE u.is_active AND g.name = ANY(%(groups)s)
"""
_PEOPLE = f"""
    SELECT p.username, clock_timestamp(), {principals.build_credentials_sql("p.username")} FROM (
        {_NAMES} AND u.username > %(after)s AND (%(all)s OR u.username = ANY(%(people)s)
            OR EXISTS (SELECT FROM auth_user_groups n JOIN auth_group named ON named.id = n.group_id
                WHERE n.user_id = u.id AND named.name = ANY(%(named)s))
            OR EXISTS (SELECT FROM approvals_absence ab WHERE ab.deputy = u.username AND ab.ends > now()))
        ORDER BY u.username LIMIT %(most)s) p
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Who could still decide a pending request: now, in any stage (`able`), and whether they suffice.

    `away` names the people who are away, with their deputies. `is_part` says that more people may be able: so many
    were read that they suffice.
    """

    people: tuple[str, ...]
    suffice: bool
    able: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    is_part: bool = False


def list_deciders() -> tuple[Principal, ...]:
    """Return all active people with a right to decide, by name."""
    return tuple(chain.from_iterable(_read()))


def list_first_deciders(keys: frozenset[str], count: int) -> tuple[Principal, ...]:
    """Return the people with a right to decide whom these keys name, and all deputies, until there are `count`."""
    people = list[Principal]()
    for chunk in _read(keys):
        people += chunk
        unmatched = (keys.isdisjoint(list_keys(row.person, row.groups)) for row in people)
        if len(people) - sum(unmatched) >= count:
            break
    return tuple(people)


def list_decider_names() -> tuple[str, ...]:
    """Name the active members of the groups that decide, to choose from. Their rights are not verified."""
    with pool.join_transaction() as connection:
        rows = connection.execute(f"{_NAMES} ORDER BY 1", {"groups": sorted(DECIDING)}).fetchall()
    return tuple(name for (name,) in rows)


def read_outlook(
    approval: Approval, votes: Mapping[str, int] | None = None, *, limit: int | None = None
) -> Outlook:
    """Return the outlook of one request now. It reads the people who matter to its rule, `limit` at a time.

    It stops as soon as they suffice: a page must not verify the rights of thousands.
    """
    people, latest, limit = tuple[Principal, ...](), None, limit or READ
    for some in _read(_find_keys(approval), limit):
        people += some
        latest = compute_outlook(approval, people, votes=votes)
        if latest.suffice:
            return replace(latest, is_part=len(some) == limit)
    return latest or compute_outlook(approval, (), votes=votes)


def select_relevant(approval: Approval, people: Iterable[Principal]) -> tuple[Principal, ...]:
    """Return those of these people who can matter to the rule of a request, the deputies of others among them."""
    keys = _find_keys(approval)
    if keys is None:
        return tuple(people)
    return tuple(
        principal
        for principal in people
        if principal.stand_ins or not keys.isdisjoint(list_keys(principal.person, principal.groups))
    )


def find_deadline(approval: Approval) -> datetime:
    """Return the deadline, or the last of all times."""
    return approval.expires_at or _NEVER


def compute_outlook(
    approval: Approval,
    people: Iterable[Principal],
    at: datetime | None = None,
    votes: Mapping[str, int] | None = None,
    deputies: Sequence[Principal] | None = None,
) -> Outlook:
    """Return who of these people could decide a request at a time, by default now, and whether they suffice in time.

    People of later steps of escalation suffice too, and those whose cooling-off period ends before the deadline. People
    who are away at the deadline do not, but their deputies do. A gate that is no approval needs one person. `deputies`
    are all deputies, by default those among the people.
    """
    at = at or timezone.now()
    demands = decode_demands(approval.rule)
    people = tuple(people)
    deputies = people if deputies is None else deputies
    if votes is None:
        votes = dict(approval.votes.values_list("person", "stage")) if demands is not None else {}
    end = find_deadline(approval)
    away_people = {absent.person for principal in deputies for absent in principal.stands_for}
    able = _select_able(approval, people, {*votes, *away_people}, at)
    away_people = {absent.person for principal in deputies for absent in principal.list_absent(end)}
    then = [
        replace(person, stands_for=person.list_absent(end)) if person.stand_ins else person
        for person in people
    ]
    later = _select_able(approval, then, {*votes, *away_people}, end)
    away = tuple(
        f"{absent.person} (deputy {principal.person})"
        for principal in deputies
        for absent in principal.stands_for
    )
    if demands is None:
        return Outlook(people=tuple(able), suffice=bool(later), able=tuple(able), away=away)
    stages = policy.compute_stages(demands, approval.opened_until, at)
    stage = tally.find_current_stage(stages, votes)
    now = [
        name
        for name, principal in able.items()
        if stage is None or stages[stage].is_eligible(name, principal.groups)
    ]
    for_others = {
        name: absent
        for name, principal in able.items()
        for absent, groups in _stand_ins(approval, principal, votes, at)
        if name not in now and stage is not None and stages[stage].is_eligible(absent, groups)
    }
    if approval.is_of_call:
        suffice = tally.can_complete(
            policy.compute_stages(demands, approval.opened_until, end),
            votes,
            {name: principal.groups for name, principal in later.items()},
            {
                name: _stand_ins(approval, principal, votes, end)
                for name, principal in later.items()
            },
        )
    else:
        suffice = bool(later)
    return Outlook(
        people=(*now, *(f"{name} (for {absent})" for name, absent in for_others.items())),
        suffice=suffice,
        able=tuple(able),
        away=away,
    )


def find_impossible_rule(policy: Policy, people: Iterable[Principal]) -> str | None:
    """Name the first rule that too few people could ever meet; None if all can be met.

    A run's requester cannot decide, so where one of these people may start runs, one more is needed than the quorum.
    That is not counted here: it depends on the run, and the request warns.
    """
    groups = {principal.person: principal.groups for principal in people}
    for rule in policy.rules:
        rule_people = {name for stage in rule.stages for name in stage.people}
        rule_people |= {name for step in rule.escalate for name in step.people}
        if unknown := sorted(rule_people - set(groups)):
            return f"the rule {rule.name} names {unknown[0]}, who may not decide"
        if not tally.can_complete(rule.stages, {}, groups):
            needed = sum(stage.quorum for stage in rule.stages)
            return (
                f"the rule {rule.name} needs {needed} people, but too few may approve in its stages"
            )
    return None


MAX_NAMED = 12
# People that a request without a rule names, of those whose rights are read.
NAMED, RIGHTS_READ = 3, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """One stage with its votes. `waits` says that it is the one that lacks people now."""

    number: int
    quorum: int
    eligible: str
    votes: tuple[Vote, ...]
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VotePanel:
    """The votes on a request. `could` names who could vote now, `unnamed` counts those not named.

    With `at_least` there may be more of them. `suffice` is False if the people who are left cannot complete the
    stages: then it will expire. `waits_for` names those of the open stage if the reader is not one of them, and
    `turn_comes` says that a later stage admits the reader.
    """

    rule: str
    version: str
    failed: str
    approved: int
    quorum: int
    stages: tuple[StageView, ...]
    could: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    unnamed: int = 0
    at_least: bool = False
    suffice: bool = True
    reason: bool = False
    mine: bool = False
    waits_for: str = ""
    turn_comes: bool = False


def name_possible_deciders(approval: ApprovalView) -> str:
    """Name the first people who could decide a pending request without a rule, for a reader who may not."""
    has_rule = approval.demands is not None
    if approval.denial is None or not approval.is_pending or approval.tampered or has_rule:
        return ""
    outlook = read_outlook(approval.stored, limit=RIGHTS_READ)
    names, count = ", ".join(outlook.people[:NAMED]), len(outlook.people) - NAMED
    least = "at least " if outlook.is_part else ""
    return f"{names} and {least}{count} more" if count > 0 else names


def find_too_few_people(approval: ApprovalView, panel: VotePanel | None) -> tuple[str, ...] | None:
    """Name who is left if too few people can approve a pending request in time; None if they suffice."""
    if panel is not None:
        return None if panel.suffice else panel.could
    pending = approval.status == Approval.Status.PENDING and not approval.tampered
    if not pending or approval.undecidable_at is None:  # the sweeper looks each minute
        return None
    outlook = read_outlook(Approval.objects.get(pk=approval.id))
    return None if outlook.suffice else outlook.people[:MAX_NAMED]


def find_panel(approval: ApprovalView) -> VotePanel | None:
    """Return the panel of a request for its reader; None under the default policy, where one person decides."""
    demands = approval.demands
    if demands is None or approval.tampered:
        return None
    rows = Vote.objects.filter(approval=approval.id)
    votes = list(rows.order_by("at", "person"))
    counted = {vote.person: vote.stage for vote in votes}
    pending = approval.is_pending
    stages = policy.compute_stages(demands, approval.opened_until, timezone.now())
    current = tally.find_current_stage(stages, counted) if pending else None
    outlook = Outlook(people=(), suffice=True)
    if pending:
        outlook = read_outlook(approval.stored, counted)
    return VotePanel(
        rule=demands.rule,
        version=approval.policy_version,
        failed=demands.failed,
        approved=len(votes),
        quorum=demands.quorum,
        stages=tuple(
            StageView(
                number=index + 1,
                quorum=stage.quorum,
                eligible=_describe_eligible(stage),
                votes=tuple(vote for vote in votes if vote.stage == index),
                waits=index == current,
            )
            for index, stage in enumerate(stages)
        ),
        could=outlook.people[:MAX_NAMED],
        away=outlook.away[:MAX_NAMED],
        unnamed=max(0, len(outlook.people) - MAX_NAMED),
        at_least=outlook.is_part,
        suffice=outlook.suffice,
        reason=demands.reason,
        mine=pending and approval.reader is not None and approval.reader.person in counted,
        **_turn(stages, current, approval.reader, outlook.people),
    )


def _find_keys(approval: Approval) -> frozenset[str] | None:
    """Return whom the rule of a request names, as in `Stage.keys`; None if every reviewer can decide it."""
    demands = None if approval.is_in_doubt else decode_demands(approval.rule)
    keys = None if demands is None else demands.readers
    return None if keys is None else frozenset(keys)


def _read(
    keys: frozenset[str] | None = None, limit: int | None = None
) -> Iterator[tuple[Principal, ...]]:
    """Read the people with a right to decide, by name; with `keys` only those, and the deputies of others."""
    limit = limit or READ
    parameters: dict[str, Any] = {
        "groups": sorted(DECIDING),
        "all": keys is None,
        "people": [key.removeprefix(PERSON) for key in keys or () if key.startswith(PERSON)],
        "named": [key.removeprefix(GROUP) for key in keys or () if key.startswith(GROUP)],
        "after": "",
        "most": limit,
    }
    while True:
        with pool.join_transaction() as connection:
            rows = connection.execute(_PEOPLE, parameters).fetchall()
        people = [
            principals.restore_principal(Actor(person=name), credentials, at)
            for name, at, credentials in rows
        ]
        yield tuple(principal for principal in people if principal is not None)
        if len(rows) < limit:
            return
        parameters["after"] = rows[-1][0]


def _select_able(
    approval: Approval, people: Sequence[Principal], excluded: Collection[str], at: datetime
) -> dict[str, Principal]:
    """Return the people who may decide at a time. `excluded` are away with a deputy, or have a vote."""
    able = dict[str, Principal]()
    for principal in people:
        cooled = principal.cooling_until is not None and principal.cooling_until < at
        then = replace(principal, cooling_until=None) if cooled else principal
        if principal.person in excluded or principal.person in approval.voted_for:
            continue
        if approval_rights.find_denial(then, approval, at=at) is None:
            able[principal.person] = principal
    return able


def _stand_ins(
    approval: Approval, principal: Principal, votes: Mapping[str, int], at: datetime
) -> list[tally.Voter]:
    """Return the absent people in whose place a person may still vote, with their groups."""
    return [
        (absent.person, absent.groups)
        for absent in approval_rights.stand_in(principal, approval, at=at)
        if absent.person not in {*votes, *approval.voted_for}
    ]


def _turn(
    stages: Sequence[Stage], current: int | None, reader: Principal | None, could: Sequence[str]
) -> dict[str, Any]:
    """Say for whom a reader waits who may not approve in the open stage."""
    if current is None or reader is None or _is_in(stages[current], reader):
        return {}
    stage = stages[current]
    members = ", ".join(name for name in could[:MAX_NAMED] if name not in stage.people)
    return {
        "waits_for": f"{_describe_eligible(stage)} ({members})"
        if members
        else _describe_eligible(stage),
        "turn_comes": any(_is_in(later, reader) for later in stages[current + 1 :]),
    }


def _is_in(stage: Stage, reader: Principal) -> bool:
    return any(
        stage.is_eligible(principal.person, principal.groups)
        for principal in (reader, *reader.stands_for)
    )


def _describe_eligible(stage: Stage) -> str:
    """Name who may vote in a stage."""
    return ", ".join((*stage.people, *stage.groups)) or "everyone who may decide"
