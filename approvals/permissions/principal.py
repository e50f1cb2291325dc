"""Who may do and read what: the rights of a person's groups, cut to the scopes of the token.

Scopes say what may be asked for at all; which rows then answer is decided row by row: a run and
its approvals are read by the requester, by those who may decide one of its requests, and by
admins.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache, reduce
from operator import or_
from typing import Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q

from approvals import policy, stored_rows
from approvals.models import Assignment, Request, Token
from approvals.permissions import assignments, signatures
from approvals.permissions.assignments import Bond
from approvals.policy import Group
from runtime.core.enums import Risk
from runtime.errors import Forbidden
from runtime.ports.access import Actor, Expression
from runtime.store import pool

R = TypeVar("R", Assignment, Token)


class Scope(StrEnum):
    """What a token may be used for."""

    RUNS_START = "runs:start"  # start runs
    RUNS_READ = "runs:read"  # read runs and their journals
    RUNS_CANCEL = "runs:cancel"  # cancel runs
    RUNS_CONTROL = "runs:control"  # pause and resume runs, and send them messages
    EVENTS_SEND = "events:send"  # send external events
    APPROVALS_READ = "approvals:read"  # read approvals
    APPROVALS_DECIDE = "approvals:decide"  # approve and deny
    ADMIN = "admin"  # read everything, including continuations


ALL_SCOPES = frozenset(str(scope) for scope in Scope)

# Reading, cancelling and holding up are everybody's, because the rows that answer are chosen one by one.
_EVERYBODY = frozenset(
    {Scope.RUNS_READ, Scope.RUNS_CANCEL, Scope.RUNS_CONTROL, Scope.APPROVALS_READ}
)
_RIGHTS: Mapping[str, frozenset[Scope]] = {
    Group.REQUESTERS: frozenset({Scope.RUNS_START}),
    Group.REVIEWERS: frozenset({Scope.APPROVALS_DECIDE}),
    Group.ADMINS: frozenset({Scope.ADMIN, Scope.RUNS_START, Scope.EVENTS_SEND}),
}
# A person with one of these rights may read agents.
_AGENT_READERS = frozenset({Scope.RUNS_START, Scope.APPROVALS_DECIDE, Scope.ADMIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The rights of an actor at this moment, read from the database at each use.

    `groups` lists the groups with a signed assignment. `bonds` names people in whose runs a right to decide does not
    count; before `cooling_until` it counts in no run.
    """

    person: str
    groups: frozenset[str]
    scopes: frozenset[str]
    bonds: tuple[Bond, ...] = ()
    cooling_until: datetime | None = None

    def has(self, scope: str) -> bool:
        return scope in self.scopes and scope in rights_of(self.groups)


class Access:
    """The engine's port for rights."""

    def require(self, actor: Actor, scope: str) -> None:
        """Raise Forbidden unless the actor's token has `scope` and its owner has that right."""
        _require(standing_of(actor), scope)

    def rights(self, actor: Actor) -> Expression:
        """Return the expression of what the actor's rights rest on, for `require_read`."""
        return Expression(sql=HELD, parameters=parameters_of(actor))

    def require_read(self, actor: Actor, scope: str, rights: Any, *, at: datetime) -> None:
        """Raise Forbidden as `require` does, by the value that `rights` had at this time."""
        _require(standing(actor, rights, at), scope)

    def readable_runs(self, actor: Actor) -> Q:
        """The condition on Run that holds for exactly the runs this actor may read."""
        standing = standing_of(actor)
        if standing is None:
            return Q(pk__in=[])
        if standing.has(Scope.ADMIN):
            return Q()
        decidable = Request.objects.filter(_of_decided_risk(standing)).values("run")
        return Q(requester=standing.person) | Q(pk__in=decidable)

    def may_cancel(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may cancel a run of `requester`: their own, or any as an admin."""
        return _owns(standing_of(actor), Scope.RUNS_CANCEL, requester)

    def may_control(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may hold up a run of `requester`: their own, or any as an admin."""
        return _owns(standing_of(actor), Scope.RUNS_CONTROL, requester)

    def may_fork(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may start forks of a run of `requester`: their own, or any as an admin."""
        standing = standing_of(actor)
        if standing is None or not standing.has(Scope.RUNS_START):
            return False
        return standing.person == requester or standing.has(Scope.ADMIN)

    def require_agents(self, actor: Actor) -> None:
        """Raise Forbidden unless the actor may read agents: people who start runs or decide, and admins."""
        standing = standing_of(actor)
        if standing is None:
            raise Forbidden("not_eligible", "This person may not act.")
        if not reads_agents(standing):
            code = (
                "not_eligible" if _AGENT_READERS.isdisjoint(rights_of(standing.groups)) else "scope"
            )
            raise Forbidden(
                code, f"To read agents, have one of {', '.join(sorted(_AGENT_READERS))}."
            )

    def reads_continuations(self, actor: Actor) -> bool:
        """Whether the actor may read the continuation of a run that it can read."""
        standing = standing_of(actor)
        return standing is not None and standing.has(Scope.ADMIN)


def actor_of(user: AbstractBaseUser | AnonymousUser) -> Actor:
    """The actor behind a browser session, which has every scope. The user must be logged in."""
    if not user.is_authenticated:
        raise ValueError("nobody is logged in")
    return Actor(person=user.get_username())


def held(person: str, key: str = "") -> str:
    """Return the SQL expression of all that a person's rights rest on, as JSON text, for `standing` to verify.

    `person` and `key`, the id of a token, are expressions too. Without `key` no token is looked for: workers may not
    read tokens. It is NULL for a person who is unknown or disabled. An assignment counts only if the person has what it
    gives in Django's tables as well.
    """
    token = (
        f"""(SELECT json_build_array({_TOKEN}) FROM approvals_token t
                WHERE t.public_id = {key} AND t.owner_id = u.id AND t.revoked_at IS NULL)"""
        if key
        else "NULL"
    )
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
            'token', {token})::text
        FROM auth_user u WHERE u.username = {person} AND u.is_active)"""


_ASSIGNMENT_NAMES = stored_rows.names_of(Assignment)
_TOKEN_NAMES = tuple(name for name in stored_rows.names_of(Token) if name != "last_used_at")
_ASSIGNMENT = ", ".join(f"a.{name}" for name in _ASSIGNMENT_NAMES)
_TOKEN = ", ".join(f"t.{name}" for name in _TOKEN_NAMES)
_TIMES = frozenset({"at", "given_at", "confirmed_at", "created_at", "revoked_at"})
# The expression for an actor, of whom `parameters_of` gives the parameters.
HELD = held("%(person)s", "%(token)s")
_LOOK = f"SELECT clock_timestamp(), {HELD}"


def parameters_of(actor: Actor) -> dict[str, object]:
    """Return the parameters of HELD."""
    return {"person": actor.person, "token": actor.token}


def standing_of(actor: Actor) -> Standing | None:
    """Return an actor's rights; None if the person is unknown or disabled, or the token not valid for this person.

    With an unsigned password a person has no rights.
    """
    with pool.asking() as connection:
        row = connection.execute(_LOOK, parameters_of(actor)).fetchone()
    assert row is not None  # a SELECT without FROM has one row
    return standing(actor, row[1], row[0])


def standing(
    actor: Actor, found: str | None, now: datetime, *, past: bool = False
) -> Standing | None:
    """Return the rights of an actor by what HELD found; None as `standing_of` does.

    With `past`, `now` is the time of a past decision: the cooling-off period must have ended by then, and the password,
    which may have been set since, is not looked at.
    """
    rows, token = _read(found) if found is not None else ((), None)
    scopes = _scopes_of(actor, token)
    if found is None or scopes is None:
        return None
    held = {
        row.what: row
        for row, text in rows
        if row.username == actor.person and assignments.in_force_by(row, text)
    }
    password = held.pop(assignments.CREDENTIAL, None)
    given = {what: row for what, row in held.items() if not assignments.is_pending(row)}
    if not past:
        given = _with_password(given, password)
    deciding = [row for what, row in given.items() if what in policy.DECIDING]
    if deciding and password is not None and not past:
        deciding.append(password)
    ends = [end for row in deciding if (end := assignments.cools_until(row)) and end > now]
    return Standing(
        person=actor.person,
        groups=frozenset(given),
        scopes=scopes,
        bonds=tuple(bond for row in deciding if (bond := assignments.bond(row))),
        cooling_until=max(ends, default=None),
    )


def _with_password(
    given: dict[str, Assignment], password: Assignment | None
) -> dict[str, Assignment]:
    """Return the rights that remain with this password."""
    if password is None:
        return {}
    if assignments.is_pending(password):
        return {what: row for what, row in given.items() if what != Group.ADMINS}
    return given


# The rows are the same for as long as the text is. Nothing is trusted for that: signatures are verified each time.
@lru_cache(256)
def _read(found: str) -> tuple[tuple[tuple[Assignment, str], ...], tuple[Token, str] | None]:
    """Make rows of what HELD found, each with the text of it that is signed.

    A row with a value of another type, such as a time that is none, gives no right.
    """
    held = json.loads(found)
    given = [_row(Assignment, _ASSIGNMENT_NAMES, values) for values in held["given"] or ()]
    token = held["token"] and _row(Token, _TOKEN_NAMES, held["token"])
    return tuple(one for one in given if one is not None), token


def _row(model: type[R], names: Sequence[str], values: Sequence[object]) -> tuple[R, str] | None:
    row = model()
    try:
        for name, value in zip(names, values, strict=True):
            is_time = value is not None and name in _TIMES
            setattr(row, name, datetime.fromisoformat(str(value)) if is_time else value)
        return row, signatures.text_of(row)
    except (ValueError, TypeError, AttributeError):
        return None


def reads_agents(standing: Standing) -> bool:
    """Whether this standing may read agents, with their tools and schemas."""
    return any(standing.has(scope) for scope in _AGENT_READERS)


def _require(standing: Standing | None, scope: str) -> None:
    if standing is None:
        raise Forbidden("not_eligible", "This person may not act.")
    require(standing, scope)


def require(standing: Standing, scope: str) -> None:
    """Raise Forbidden with the code `scope` or `not_eligible` unless `standing` has the right."""
    if scope not in standing.scopes:
        raise Forbidden("scope", f"This token does not have the scope {scope}.")
    if scope not in rights_of(standing.groups):
        raise Forbidden("not_eligible", f"{standing.person} does not have the right {scope}.")


def readable_requests(standing: Standing | None) -> Q:
    """The condition on Request that holds for exactly those this standing may read."""
    if standing is None:
        return Q(pk__in=[])
    if standing.has(Scope.ADMIN):
        return Q()
    return Q(requester=standing.person) | _of_decided_risk(standing)


def reads(standing: Standing | None, row: Request) -> bool:
    """The same of one request."""
    if standing is None:
        return False
    if standing.has(Scope.ADMIN) or row.requester == standing.person:
        return True
    decided = policy.risks_decided_by(standing.groups)
    return bool(decided) and row.risk not in set(Risk) - decided


def decidable_requests(standing: Standing | None) -> Q:
    """The condition on Request that holds for exactly those this standing may decide."""
    if standing is None or Scope.APPROVALS_DECIDE not in standing.scopes or standing.cooling_until:
        return Q(pk__in=[])
    return _of_decided_risk(standing) & ~_barred(standing)


def undecidable_requests(standing: Standing | None) -> Q:
    """The condition that holds for those of the readable ones that this standing may not decide.

    Said as what they are and not as what they are not: one's own are found by an index among a million.
    """
    if standing is None or Scope.APPROVALS_DECIDE not in standing.scopes or standing.cooling_until:
        return Q()
    own = _barred(standing)
    if not standing.has(Scope.ADMIN):
        return own
    return own | ~_of_decided_risk(standing)


def _of_decided_risk(standing: Standing) -> Q:
    """The condition that holds for requests of a risk that this standing may decide.

    For people who decide anything, also for those of a risk that does not exist: such a row was tampered with,
    which a reviewer has to see. Deciding it is refused.
    """
    decided = policy.risks_decided_by(standing.groups)
    if not decided:
        return Q(pk__in=[])
    return ~Q(risk__in=set(Risk) - decided)


def _barred(standing: Standing) -> Q:
    """Build the condition on requests whose origin includes this person, or a giver of their right to decide."""
    barred = _comes_from(standing.person)
    for bond in standing.bonds:
        theirs = reduce(or_, map(_comes_from, sorted(bond.givers)))
        barred |= theirs if bond.second is None else theirs & _comes_from(bond.second)
    return barred


def _comes_from(person: str) -> Q:
    return Q(requester=person) | Q(excluded__contains=[person])


def refusal(
    standing: Standing | None, row: Request, origin: Collection[str] = ()
) -> Forbidden | None:
    """Say why a reader of a request may not decide it; None if they may.

    `origin` names people whom the row may lack: see Gatekeeper.confirm.
    """
    if standing is None:
        return Forbidden("not_eligible", "This person may not act.")
    if Scope.APPROVALS_DECIDE not in standing.scopes:
        return Forbidden("scope", f"This token does not have the scope {Scope.APPROVALS_DECIDE}.")
    people = {*stored_rows.texts(row.origin), *stored_rows.texts(row.excluded), *origin}
    code = policy.may_decide(
        requester=row.requester,
        origin=people,
        person=standing.person,
        groups=standing.groups,
        risk=row.risk,
        bound=any(bond.binds({row.requester, *people}) for bond in standing.bonds),
        cooling=standing.cooling_until is not None,
    )
    match code:
        case None:
            return None
        case "requester":
            return Forbidden(
                code, f"{standing.person} started this run, so another person must decide."
            )
        case "origin":
            return Forbidden(
                code,
                f"{standing.person} is in this run's origin, so another person must decide: they started the run it"
                " was made from, tried it again, or sent it a message or an event.",
            )
        case "not_eligible":
            return Forbidden(
                code, f"{standing.person} may not decide on actions of {row.risk} risk."
            )
        case "given_by_origin":
            return Forbidden(code, _bound(standing, {row.requester, *people}))
        case "cooling_off":
            return Forbidden(code, _cooling(standing))


def _bound(standing: Standing, people: Collection[str]) -> str:
    named = sorted(
        {
            giver
            for bond in standing.bonds
            if bond.binds(people)
            for giver in bond.givers & set(people)
        }
    )
    return (
        f"{standing.person} got the right to decide from {', '.join(named)}, who is in this run's origin: the right"
        " does not count here until a second admin confirms it on the page People."
    )


def _cooling(standing: Standing) -> str:
    assert standing.cooling_until is not None
    return (
        f"An admin gave {standing.person} the right to decide only recently: it counts from"
        f" {standing.cooling_until.astimezone(UTC):%Y-%m-%d %H:%M} UTC, or once a second admin confirms it on"
        " the page People."
    )


def _owns(standing: Standing | None, scope: str, requester: str) -> bool:
    if standing is None or not standing.has(scope):
        return False
    return standing.person == requester or standing.has(Scope.ADMIN)


def rights_of(groups: frozenset[str]) -> frozenset[str]:
    """The scopes that somebody in `groups` could use."""
    rights = set(_EVERYBODY)
    for name in groups:
        rights |= _RIGHTS.get(name, frozenset())
    return frozenset(rights)


def _scopes_of(actor: Actor, token: tuple[Token, str] | None) -> frozenset[str] | None:
    if actor.token is None:
        return ALL_SCOPES
    if token is None or not signatures.is_signed(*token):
        return None
    return frozenset(token[0].scopes)
