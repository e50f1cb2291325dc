"""Implements the engine's port for rights.

A scope is needed to send a request. Its readable rows are decided one by one: the requester, admins, and reviewers
who may decide one of its requests, by its risk and its rule, can read a run. They can read those of its approvals.
"""

from datetime import datetime
from typing import Any

from django.db.models import Q

from approvals.models import Approval
from approvals.rights import approval_rights, principals
from approvals.rights.principals import AGENT_READERS, Principal, Scope, rights_of
from runtime.errors import Forbidden
from runtime.ports.access import Actor, Expression


class AccessService:
    """The engine's port for rights."""

    def require(self, actor: Actor, scope: str) -> None:
        """Raise Forbidden unless the actor's token has `scope` and its owner has that right."""
        _require(principals.principal_of(actor), scope)

    def rights(self, actor: Actor) -> Expression:
        """Return the SQL expression of the facts behind the actor's permissions, for `require_read`."""
        sql = principals.CREDENTIALS_OF_PERSON if actor.token is None else principals.CREDENTIALS
        return Expression(sql=sql, parameters=principals.parameters_of(actor))

    def require_read(self, actor: Actor, scope: str, rights: Any, *, at: datetime) -> None:
        """Raise Forbidden as `require` does, by the value that `rights` had at this time."""
        _require(principals.from_rights(actor, rights, at), scope)

    def readable_runs(self, actor: Actor) -> Q:
        """Return the condition on Run that holds for exactly the runs this actor may read."""
        principal = principals.principal_of(actor)
        if principal is None:
            return Q(pk__in=[])
        if principal.has(Scope.ADMIN):
            return Q()
        decidable = Approval.objects.filter(approval_rights.for_decider(principal)).values("run")
        return Q(requester=principal.person) | Q(pk__in=decidable)

    def may_cancel(self, actor: Actor, requester: str) -> bool:
        """Tell whether the actor may cancel a run of `requester`: their own, or any as an admin."""
        return _owns(principals.principal_of(actor), Scope.RUNS_CANCEL, requester)

    def may_control(self, actor: Actor, requester: str) -> bool:
        """Tell whether the actor may pause, resume and write to a run of `requester`: their own, or any as an admin."""
        return _owns(principals.principal_of(actor), Scope.RUNS_CONTROL, requester)

    def may_fork(self, actor: Actor, requester: str) -> bool:
        """Tell whether the actor may start forks of a run of `requester`: their own, or any as an admin."""
        principal = principals.principal_of(actor)
        if principal is None or not principal.has(Scope.RUNS_START):
            return False
        return principal.person == requester or principal.has(Scope.ADMIN)

    def require_agents(self, actor: Actor) -> None:
        """Raise Forbidden unless the actor may read agents: people who start runs or decide, and admins."""
        principal = principals.principal_of(actor)
        if principal is None:
            raise Forbidden("not_eligible", "This person may not act.")
        if not reads_agents(principal):
            code = (
                "not_eligible" if AGENT_READERS.isdisjoint(rights_of(principal.groups)) else "scope"
            )
            raise Forbidden(
                code, f"To read agents, have one of {', '.join(sorted(AGENT_READERS))}."
            )

    def reads_continuations(self, actor: Actor) -> bool:
        """Tell whether the actor may read the continuation of a run that it can read."""
        principal = principals.principal_of(actor)
        return principal is not None and principal.has(Scope.ADMIN)


def reads_agents(principal: Principal) -> bool:
    """Tell whether this principal may read agents, with their tools and schemas."""
    return any(principal.has(scope) for scope in AGENT_READERS)


def require(principal: Principal, scope: str) -> None:
    """Raise Forbidden with the code `scope` or `not_eligible` unless `principal` has the right."""
    if scope not in principal.scopes:
        raise Forbidden("scope", f"This token does not have the scope {scope}.")
    if scope not in rights_of(principal.groups):
        raise Forbidden("not_eligible", f"{principal.person} does not have the right {scope}.")


def _require(principal: Principal | None, scope: str) -> None:
    if principal is None:
        raise Forbidden("not_eligible", "This person may not act.")
    require(principal, scope)


def _owns(principal: Principal | None, scope: str, requester: str) -> bool:
    if principal is None or not principal.has(scope):
        return False
    return principal.person == requester or principal.has(Scope.ADMIN)
