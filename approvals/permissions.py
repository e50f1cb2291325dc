"""Who may do and read what: the rights of a person's groups, cut to the scopes of the token.

Scopes say what may be asked for at all; which rows then answer is decided row by row: a run and
its approvals are read by the requester, by those who may decide one of its requests, and by
admins.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import connection
from django.db.models import Q

from approvals import policy
from approvals.models import Request, Token
from approvals.policy import Group
from runtime.ports import Actor, Forbidden


class Scope(StrEnum):
    """What a token may be used for."""

    RUNS_START = "runs:start"  # start runs
    RUNS_READ = "runs:read"  # read runs and their journals
    RUNS_CANCEL = "runs:cancel"  # cancel runs
    RUNS_CONTROL = "runs:control"  # pause and resume runs, and write to them
    EVENTS_SEND = "events:send"  # tell of events that calls wait for
    APPROVALS_READ = "approvals:read"  # read approvals
    APPROVALS_DECIDE = "approvals:decide"  # approve and deny
    ADMIN = "admin"  # read everything, continuations too


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an actor is right now: read afresh from the database each time it is asked for."""

    person: str
    groups: frozenset[str]
    scopes: frozenset[str]

    def has(self, scope: str) -> bool:
        return scope in self.scopes and scope in rights_of(self.groups)


class Access:
    """The engine's port for rights."""

    def require(self, actor: Actor, scope: str) -> None:
        """Raise Forbidden unless the actor's token has `scope` and its owner has that right."""
        standing = standing_of(actor)
        if standing is None:
            raise Forbidden("not_eligible", "This person may not act.")
        require(standing, scope)

    def readable_runs(self, actor: Actor) -> Q:
        """The condition on Run that holds for exactly the runs this actor may read."""
        standing = standing_of(actor)
        if standing is None:
            return Q(pk__in=[])
        if standing.has(Scope.ADMIN):
            return Q()
        risks = policy.risks_decided_by(standing.groups)
        decidable = Request.objects.filter(risk__in=risks).values("run")
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

    def reads_continuations(self, actor: Actor) -> bool:
        """Whether the actor may read the continuation of a run that it can read."""
        standing = standing_of(actor)
        return standing is not None and standing.has(Scope.ADMIN)


def actor_of(user: AbstractBaseUser | AnonymousUser) -> Actor:
    """The actor behind a browser session, which has every scope. The user must be logged in."""
    if not user.is_authenticated:
        raise ValueError("nobody is logged in")
    return Actor(person=user.get_username())


_GROUPS = """
    SELECT g.name
    FROM auth_user u
        LEFT JOIN auth_user_groups m ON m.user_id = u.id
        LEFT JOIN auth_group g ON g.id = m.group_id
    WHERE u.username = %s AND u.is_active
"""


def standing_of(actor: Actor) -> Standing | None:
    """None if the person is unknown or disabled, or the token revoked or somebody else's."""
    # Of every page, and of each decision twice, where the ORM would cost more than Postgres.
    with connection.cursor() as cursor:
        cursor.execute(_GROUPS, [actor.person])
        groups = [name for (name,) in cursor.fetchall()]
    scopes = _scopes_of(actor)
    if not groups or scopes is None:
        return None
    return Standing(
        person=actor.person,
        groups=frozenset(name for name in groups if name is not None),
        scopes=scopes,
    )


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
    risks = policy.risks_decided_by(standing.groups)
    return Q(requester=standing.person) | Q(risk__in=risks)


def decidable_requests(standing: Standing | None) -> Q:
    """The condition on Request that holds for exactly those this standing may decide."""
    if standing is None or Scope.APPROVALS_DECIDE not in standing.scopes:
        return Q(pk__in=[])
    risks = policy.risks_decided_by(standing.groups)
    own = Q(requester=standing.person) | Q(excluded__contains=[standing.person])
    return Q(risk__in=risks) & ~own


def undecidable_requests(standing: Standing | None) -> Q:
    """The condition that holds for those of the readable ones that this standing may not decide.

    Said as what they are and not as what they are not: one's own are found by an index among a million.
    """
    if standing is None or Scope.APPROVALS_DECIDE not in standing.scopes:
        return Q()
    own = Q(requester=standing.person) | Q(excluded__contains=[standing.person])
    if not standing.has(Scope.ADMIN):
        return own
    return own | ~Q(risk__in=policy.risks_decided_by(standing.groups))


def refusal(
    standing: Standing | None, row: Request, origin: Collection[str] = ()
) -> Forbidden | None:
    """Why a reader of a request may not decide it, None if they may.

    `origin` are people whom the row may not know of yet: see Gatekeeper.confirm.
    """
    if standing is None:
        return Forbidden("not_eligible", "This person may not act.")
    if Scope.APPROVALS_DECIDE not in standing.scopes:
        return Forbidden("scope", f"This token does not have the scope {Scope.APPROVALS_DECIDE}.")
    code = policy.may_decide(
        requester=row.requester,
        origin={*texts(row.origin), *texts(row.excluded), *origin},
        person=standing.person,
        groups=standing.groups,
        risk=row.risk,
    )
    match code:
        case None:
            return None
        case "requester":
            return Forbidden(code, "Nobody decides on a run that they started themselves.")
        case "origin":
            return Forbidden(
                code,
                f"This run also comes from {standing.person}, who started what it goes on from, or"
                " wrote or sent to it: nobody decides on a run that they had a part in.",
            )
        case "not_eligible":
            return Forbidden(
                code, f"{standing.person} may not decide on actions of {row.risk} risk."
            )


def texts(stored: object) -> list[str]:
    """The texts of a stored list. A column that was tampered with may hold anything else."""
    return [one for one in stored if isinstance(one, str)] if isinstance(stored, list) else []


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


def _scopes_of(actor: Actor) -> frozenset[str] | None:
    if actor.token is None:
        return ALL_SCOPES
    token = Token.objects.filter(
        public_id=actor.token, owner__username=actor.person, revoked_at=None
    ).first()
    return None if token is None else frozenset(token.scopes)
