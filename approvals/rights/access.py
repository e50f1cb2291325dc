"""Implements the engine's port for rights, and the rule of two admins.

A scope is needed to send a request. Its readable rows are decided one by one: the requester, admins, and reviewers
who may decide one of its requests, by its risk and its rule, can read a run. They can read those of its approvals.

What an admin changes takes effect when a second, independent one confirms it. Two admins are independent if neither
gave the other the right or the password, directly or through other admins. If an installation has no such admin, the
change takes effect a day later, and everyone who may decide can see it until then. The command line proposes and
confirms alone, because its operator has the keys.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db.models import Q

from approvals.models import Approval
from approvals.rights import approval_rights, assignments, principals
from approvals.rights.principals import AGENT_READERS, Principal, Scope, compute_scopes
from approvals.rules.policy import Group
from runtime.errors import Forbidden
from runtime.ports.access import Actor, Expression

ALONE: Final = timedelta(hours=24)


class AccessService:
    """The engine's port for rights."""

    def require(self, actor: Actor, scope: str) -> None:
        """Raise Forbidden unless the actor's token has `scope` and its owner has that right."""
        _require(principals.find_principal(actor), scope)

    def rights(self, actor: Actor) -> Expression:
        """Return the SQL expression of the facts behind the actor's permissions, for `require_read`."""
        sql = principals.CREDENTIALS_OF_PERSON if actor.token is None else principals.CREDENTIALS
        return Expression(sql=sql, parameters=principals.build_parameters(actor))

    def require_read(self, actor: Actor, scope: str, rights: Any, *, at: datetime) -> None:
        """Raise Forbidden as `require` does, by the value that `rights` had at this time."""
        _require(principals.restore_principal(actor, rights, at), scope)

    def select_readable_runs(self, actor: Actor) -> Q:
        """Return the condition on Run that holds for exactly the runs this actor may read."""
        principal = principals.find_principal(actor)
        if principal is None:
            return Q(pk__in=[])
        if principal.has(Scope.ADMIN):
            return Q()
        decidable = Approval.objects.filter(approval_rights.match_for_decider(principal)).values(
            "run"
        )
        return Q(requester=principal.person) | Q(pk__in=decidable)

    def may_cancel(self, actor: Actor, requester: str) -> bool:
        """Tell whether the actor may cancel a run of `requester`: their own, or any as an admin."""
        return _is_owner(principals.find_principal(actor), Scope.RUNS_CANCEL, requester)

    def may_control(self, actor: Actor, requester: str) -> bool:
        """Tell whether the actor may pause, resume and write to a run of `requester`: their own, or any as an admin."""
        return _is_owner(principals.find_principal(actor), Scope.RUNS_CONTROL, requester)

    def may_fork(self, actor: Actor, requester: str) -> bool:
        """Tell whether the actor may start forks of a run of `requester`: their own, or any as an admin."""
        principal = principals.find_principal(actor)
        if principal is None or not principal.has(Scope.RUNS_START):
            return False
        return principal.person == requester or principal.has(Scope.ADMIN)

    def require_agents(self, actor: Actor) -> None:
        """Raise Forbidden unless the actor may read agents: people who start runs or decide, and admins."""
        principal = principals.find_principal(actor)
        if principal is None:
            raise Forbidden("not_eligible", "This person may not act.")
        if not may_read_agents(principal):
            code = (
                "not_eligible"
                if AGENT_READERS.isdisjoint(compute_scopes(principal.groups))
                else "scope"
            )
            raise Forbidden(
                code, f"To read agents, have one of {', '.join(sorted(AGENT_READERS))}."
            )

    def may_read_continuations(self, actor: Actor) -> bool:
        """Tell whether the actor may read the continuation of a run that it can read."""
        principal = principals.find_principal(actor)
        return principal is not None and principal.has(Scope.ADMIN)


def may_read_agents(principal: Principal) -> bool:
    """Tell whether this principal may read agents, with their tools and schemas."""
    return any(principal.has(scope) for scope in AGENT_READERS)


def require(principal: Principal, scope: str) -> None:
    """Raise Forbidden with the code `scope` or `not_eligible` unless `principal` has the right."""
    if scope not in principal.scopes:
        raise Forbidden("scope", f"This token does not have the scope {scope}.")
    if scope not in compute_scopes(principal.groups):
        raise Forbidden("not_eligible", f"{principal.person} does not have the right {scope}.")


def _require(principal: Principal | None, scope: str) -> None:
    if principal is None:
        raise Forbidden("not_eligible", "This person may not act.")
    require(principal, scope)


def _is_owner(principal: Principal | None, scope: str, requester: str) -> bool:
    if principal is None or not principal.has(scope):
        return False
    return principal.person == requester or principal.has(Scope.ADMIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondAdmin:
    """The admins who may confirm what `author` proposed. None is the command line."""

    author: str | None

    def may_be(self, person: str) -> bool:
        """Tell whether this person is an admin who is independent of the author."""
        return may_administer(Actor(person=person)) and self.is_independent(person)

    def is_independent(self, admin: str) -> bool:
        """Tell whether the admin is independent of the author; of the command line, every admin is."""
        if self.author is None:
            return True
        return assignments.list_hands(admin).isdisjoint(assignments.list_hands(self.author))

    def compute_lone_start(self, proposed_at: datetime) -> datetime | None:
        """Return when a proposal takes effect without a second admin; None if there is one to wait for."""
        if self.author is None or self.list_candidates():
            return None
        return proposed_at + ALONE

    def list_candidates(self) -> list[str]:
        """Name the admins who could confirm what the author proposes."""
        admins = User.objects.filter(is_active=True, groups__name=Group.ADMINS).order_by("username")
        return [admin.username for admin in admins if self.may_be(admin.username)]


def may_administer(actor: Actor) -> bool:
    """Tell whether the actor is an admin."""
    principal = principals.find_principal(actor)
    return principal is not None and principal.has(principals.Scope.ADMIN)
