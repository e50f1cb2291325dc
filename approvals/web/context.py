"""Adds the reader's navigation to the context of every page."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from approvals.permissions import access, principals, scopes
from approvals.policy import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Navigation:
    """Links of the navigation: `decides` shows the inbox, `starts` a form for runs, `manages` the people."""

    decides: bool = False
    starts: bool = False
    manages: bool = False
    reads_agents: bool = False


def nav(request: HttpRequest) -> dict[str, Any]:
    """Add `nav`, the navigation, read from the database when a template uses it."""
    return {"nav": SimpleLazyObject(lambda: _nav(request))}


def _nav(request: HttpRequest) -> Navigation:
    if not request.user.is_authenticated:
        return Navigation()
    principal = principals.principal_of(principals.actor_of(request.user))
    if principal is None:
        return Navigation()
    return Navigation(
        decides=principal.has(scopes.Scope.APPROVALS_DECIDE),
        starts=principal.has(scopes.Scope.RUNS_START),
        manages=Group.ADMINS in principal.groups,
        reads_agents=access.reads_agents(principal),
    )
