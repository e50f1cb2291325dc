"""Reads the rights of an actor: those of the person's groups, limited to the scopes of the token.

A deputy also has those of the people who named them, for as long as these are away. A deputy's own deputy gets nothing
by it.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from approvals.models import Absence, Assignment, Token
from approvals.rights import assignments
from approvals.rules import policy
from approvals.signed import rows as signed_rows
from runtime.ports.access import Actor
from runtime.store import pool


class Scope(StrEnum):
    """The permitted uses of a token."""

    RUNS_START = "runs:start"  # start runs
    RUNS_READ = "runs:read"  # read runs and their journals
    RUNS_CANCEL = "runs:cancel"  # cancel runs
    RUNS_CONTROL = "runs:control"  # pause and resume runs, and send them messages
    EVENTS_SEND = "events:send"  # send external events
    APPROVALS_READ = "approvals:read"  # read approvals
    APPROVALS_DECIDE = "approvals:decide"  # approve and deny
    INSTANCES_MANAGE = "instances:manage"  # provision agents outside that ask for approvals
    ADMIN = "admin"  # read everything, including continuations, and manage webhooks


ALL_SCOPES = frozenset(str(scope) for scope in Scope)

# Everyone has these: rows are filtered one by one.
_EVERYONE = frozenset(
    {Scope.RUNS_READ, Scope.RUNS_CANCEL, Scope.RUNS_CONTROL, Scope.APPROVALS_READ}
)
_RIGHTS: Mapping[str, frozenset[Scope]] = {
    policy.Group.REQUESTERS: frozenset({Scope.RUNS_START}),
    policy.Group.REVIEWERS: frozenset({Scope.APPROVALS_DECIDE}),
    policy.Group.ADMINS: frozenset(
        {Scope.ADMIN, Scope.RUNS_START, Scope.EVENTS_SEND, Scope.INSTANCES_MANAGE}
    ),
}
# A person with one of these rights may read agents.
AGENT_READERS = frozenset({Scope.RUNS_START, Scope.APPROVALS_DECIDE, Scope.ADMIN})


def compute_scopes(groups: frozenset[str]) -> frozenset[str]:
    """Return the scopes that a member of `groups` can use."""
    rights = set(_EVERYONE)
    for name in groups:
        rights |= _RIGHTS.get(name, frozenset())
    return frozenset(rights)


LONGEST_ABSENCE: Final = timedelta(
    days=60, hours=1
)  # days of a zone whose clock may change meanwhile
# People of whom each absence with this deputy ended longer ago are not read: a vote in their place counts no more.
ABSENCES_READ_FOR: Final = timedelta(days=90)

# A person, their acts about being away with the signed texts, and their assignments as text.
_Away = tuple[str, tuple[tuple[Absence, str], ...], str | None]
R = TypeVar("R", Assignment, Token, Absence)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """The rights of a person who named a deputy, and the days on which the deputy acts in their place."""

    absent: "Principal"
    starts: datetime
    ends: datetime

    def is_away(self, at: datetime) -> bool:
        """Tell whether the person is away at this time."""
        return self.starts <= at < self.ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The rights of an actor at this moment, read from the database at each use.

    `groups` lists the groups with a signed assignment, those that rules name only after their cooling-off period.
    `bonds` names people in whose runs a right to decide does not count; before `cooling_until` it counts in no run.
    `stands_for` holds the rights of the absent people whose deputy the actor is, each without those of the people whose
    deputy they are. `stand_ins` also has those who will be away: it gives no right.
    `can_be` names the people whose present password came from this person, alone or through an admin whom they made:
    they could have started or steered a run under these names.
    """

    person: str
    groups: frozenset[str]
    scopes: frozenset[str]
    bonds: tuple[assignments.Bond, ...] = ()
    cooling_until: datetime | None = None
    stands_for: tuple["Principal", ...] = ()
    stand_ins: tuple[StandIn, ...] = ()
    can_be: frozenset[str] = frozenset()

    def has(self, scope: str) -> bool:
        """Tell whether the actor has this scope."""
        return scope in self.scopes and scope in compute_scopes(self.groups)

    def list_absent(self, at: datetime) -> tuple["Principal", ...]:
        """Return whose deputy the actor is at another time, by the acts so far."""
        return tuple(stand_in.absent for stand_in in self.stand_ins if stand_in.is_away(at))


def make_actor(user: AbstractBaseUser | AnonymousUser) -> Actor:
    """Return the actor of a browser session, which has every scope. Raises ValueError without a login."""
    if not user.is_authenticated:
        raise ValueError("the user is not logged in")
    return Actor(person=user.get_username())


def build_credentials_sql(person: str, key: str = "") -> str:
    """Return the SQL expression of a person's assignments, absences of others and token for `restore_principal`.

    `person` and `key`, the id of a token, are expressions too. Without `key` no token is read: workers may not read
    tokens. It is NULL for an unknown or disabled person. An assignment counts only if Django's tables also give the
    person its group or password. Of people who named this person their deputy it has all acts, so that an act
    that is over still ends the one before it, and the assignments. The passwords are those that this person gave, and
    no second admin confirmed. They are not verified, as they only take rights away.
    """
    theirs = _build_given_sql("away.username", "NULL", "NULL")
    away = f"""(SELECT json_agg(json_build_array(away.username, away.acts, {theirs}))
        FROM (SELECT ab.username, json_agg(json_build_array({_ABSENCE})) AS acts FROM approvals_absence ab
            WHERE ab.username IN (SELECT own.username FROM approvals_absence own WHERE own.deputy = {person}
                AND own.ends > now() - interval '{ABSENCES_READ_FOR.days} days')
            GROUP BY ab.username ORDER BY ab.username) away)"""
    token = (
        f"""(SELECT json_build_array({_TOKEN}) FROM approvals_token t
                WHERE t.public_id = {key} AND t.owner_id = u.id AND t.revoked_at IS NULL)"""
        if key
        else "NULL"
    )
    return _build_given_sql(person, token, away)


def _build_given_sql(person: str, token: str, away: str) -> str:
    return f"""(
        SELECT json_build_object(
            'given', (SELECT json_agg(json_build_array({_ASSIGNMENT})) FROM (
                SELECT DISTINCT ON (what) * FROM approvals_assignment
                WHERE person_id = u.id ORDER BY what, seq DESC
            ) a WHERE CASE a.what
                WHEN 'password' THEN a.digest = encode(sha256(convert_to(u.password, 'UTF8')), 'hex')
                ELSE a.what IN (SELECT g.name FROM auth_user_groups m JOIN auth_group g ON g.id = m.group_id
                    WHERE m.user_id = u.id)
                END),
            'token', {token}, 'away', {away}, 'passwords', (
                SELECT json_agg(json_build_array(p.username, p.given_at))
                FROM approvals_assignment p JOIN auth_user o ON o.id = p.person_id
                WHERE p.what = 'password' AND p.givers @> jsonb_build_array({person}) AND p.confirmed_at IS NULL
                    AND p.digest = encode(sha256(convert_to(o.password, 'UTF8')), 'hex')
                    AND NOT EXISTS (SELECT FROM approvals_assignment l
                        WHERE l.person_id = p.person_id AND l.what = p.what AND l.seq > p.seq)))::text
        FROM auth_user u WHERE u.username = {person} AND u.is_active)"""


_FIRST = datetime.min.replace(tzinfo=UTC)
_ASSIGNMENT_NAMES = signed_rows.list_columns(Assignment)
_ABSENCE_NAMES = signed_rows.list_columns(Absence)
_TOKEN_NAMES = tuple(name for name in signed_rows.list_columns(Token) if name != "last_used_at")
_ASSIGNMENT = ", ".join(f"a.{name}" for name in _ASSIGNMENT_NAMES)
_ABSENCE = ", ".join(f"ab.{name}" for name in _ABSENCE_NAMES)
_TOKEN = ", ".join(f"t.{name}" for name in _TOKEN_NAMES)
_TIMES = frozenset(
    {
        *("at", "given_at", "confirmed_at"),
        *("created_at", "expires_at", "revoked_at"),
        *("starts", "ends"),
    }
)
# The expression for an actor, of whom `build_parameters` gives the parameters.
CREDENTIALS = build_credentials_sql("%(person)s", "%(token)s")
_LOOK = f"SELECT clock_timestamp(), {CREDENTIALS}"
CREDENTIALS_OF_PERSON = build_credentials_sql(
    "%(person)s"
)  # without a token: workers may not read them
_LOOK_AT_PERSON = f"SELECT clock_timestamp(), {CREDENTIALS_OF_PERSON}"


def build_parameters(actor: Actor) -> dict[str, object]:
    """Return the parameters of CREDENTIALS."""
    return {"person": actor.person, "token": actor.token}


def find_principal(actor: Actor) -> Principal | None:
    """Return an actor's rights; None if the person is unknown or disabled, or the token not valid for this person.

    With an unsigned password a person has no rights. A worker may ask for an actor without a token.
    """
    look = _LOOK_AT_PERSON if actor.token is None else _LOOK
    with pool.join_transaction() as connection:
        row = connection.execute(look, build_parameters(actor)).fetchone()
    assert row is not None  # a SELECT without FROM has one row
    return restore_principal(actor, row[1], row[0])


def restore_principal(
    actor: Actor, credentials: str | None, now: datetime, *, past: bool = False
) -> Principal | None:
    """Return the rights of an actor by what CREDENTIALS found; None as `find_principal` does.

    With `past`, `now` is the time of a past decision. The cooling-off period must have ended by then. The password is
    not checked, because it may have been set since.
    """
    if credentials is None:
        return None
    rows, token, away, passwords = _read(credentials)
    scopes = _find_scopes(actor, token, now)
    if scopes is None:
        return None
    in_force = {
        row.what: row
        for row, text in rows
        if row.username == actor.person and assignments.is_in_force(row, text)
    }
    password = in_force.pop(assignments.CREDENTIAL, None)
    if past:
        password = None
    elif password is None:
        in_force.clear()
    elif assignments.is_pending(password):
        in_force.pop(policy.Group.ADMINS, None)
    groups, deciding, memberships = set[str](), list[Assignment](), list[Assignment]()
    for right, row in in_force.items():
        if assignments.is_pending(row):
            continue
        if policy.is_named(right):
            until = assignments.find_cooling_end(row)
            if until is not None and until > now:
                continue  # it does not count yet; a right to decide is reported instead
            memberships.append(row)
        elif right in policy.DECIDING:
            deciding.append(row)
        groups.add(right)
    if deciding and password is not None:
        deciding.append(password)
    stand_ins = _stand_ins(actor.person, away, now, past=past)
    ends = [end for row in deciding if (end := assignments.find_cooling_end(row)) and end > now]
    return Principal(
        person=actor.person,
        groups=frozenset(groups),
        scopes=scopes,
        bonds=tuple(
            bond for row in (*deciding, *memberships) if (bond := assignments.find_bond(row))
        ),
        cooling_until=max(ends, default=None),
        stands_for=tuple(stand_in.absent for stand_in in stand_ins if stand_in.is_away(now)),
        stand_ins=stand_ins,
        can_be=frozenset(name for name, at in passwords if at <= now),
    )


def _stand_ins(
    deputy: str, away: Sequence["_Away"], now: datetime, *, past: bool
) -> tuple[StandIn, ...]:
    """Return the people in whose place this deputy acts or will act, with the rights of their own assignments."""
    stand_ins = list[StandIn]()
    for person, acts, credentials in away:
        row = _find_current_absence(acts, person, deputy, now)
        if row is None or row.ends <= now:
            continue
        absent = restore_principal(Actor(person=person), credentials, now, past=past)
        if absent is not None:
            stand_ins.append(StandIn(absent=absent, starts=row.starts, ends=row.ends))
    return tuple(stand_ins)


def _find_current_absence(
    rows: Collection[tuple[Absence, str]], person: str, deputy: str, at: datetime
) -> Absence | None:
    """Return the row by which `deputy` stands in for `person` at this time or later; None without one.

    `rows` are the acts of one person, each with its signed text. The last act up to that time counts, so an act that
    does not verify ends the absence.
    """
    acts = [(row, text) for row, text in rows if row.at <= at]
    if not acts:
        return None
    row, text = max(acts, key=lambda act: act[0].seq)
    is_deputy = (
        signed_rows.is_valid(row, text)
        and row.act == Absence.AbsenceChange.SET
        and (row.username, row.deputy) == (person, deputy)
        and row.ends - row.starts <= LONGEST_ABSENCE
        and person != deputy
    )
    return row if is_deputy else None


# The rows are the same for as long as the text is. Nothing is trusted for that: signatures are verified each time.
@lru_cache(256)
def _read(
    credentials: str,
) -> tuple[
    tuple[tuple[Assignment, str], ...],
    tuple[Token, str] | None,
    tuple["_Away", ...],
    tuple[tuple[str, datetime], ...],
]:
    """Make rows of what CREDENTIALS found, each with the text of it that is signed.

    A row with a value of another type, such as a time that is none, gives no right.
    """
    parts = json.loads(credentials)
    rows = [_decode_row(Assignment, _ASSIGNMENT_NAMES, values) for values in parts["given"] or ()]
    token = parts["token"] and _decode_row(Token, _TOKEN_NAMES, parts["token"])
    away = tuple((person, _decode_acts(acts), text) for person, acts, text in parts["away"] or ())
    passwords = tuple((name, _decode_given_at(at)) for name, at in parts["passwords"] or ())
    return tuple(row for row in rows if row is not None), token, away, passwords


def _decode_given_at(text: str) -> datetime:
    """Read when a password was given; the first of all times for infinity, because it takes a right away."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return _FIRST


def _decode_acts(rows: Sequence[Sequence[object]]) -> tuple[tuple[Absence, str], ...]:
    """Make rows of a person's acts; none if one of them has a value of another type."""
    acts = [_decode_row(Absence, _ABSENCE_NAMES, values) for values in rows]
    return tuple(act for act in acts if act is not None) if None not in acts else ()


def _decode_row(
    model: type[R], names: Sequence[str], values: Sequence[object]
) -> tuple[R, str] | None:
    row = model()
    try:
        for name, value in zip(names, values, strict=True):
            is_time = value is not None and name in _TIMES
            setattr(row, name, datetime.fromisoformat(str(value)) if is_time else value)
        return row, signed_rows.build_signed_text(row)
    except (ValueError, TypeError, AttributeError):
        return None


def _find_scopes(
    actor: Actor, token: tuple[Token, str] | None, now: datetime
) -> frozenset[str] | None:
    if actor.token is None:
        return ALL_SCOPES
    if token is None or not signed_rows.is_valid(*token):
        return None
    if token[0].expires_at is not None and token[0].expires_at <= now:
        return None
    return frozenset(token[0].scopes)
