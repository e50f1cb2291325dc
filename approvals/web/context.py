"""Adds the reader's navigation to the context of every page."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from approvals.people import account_list
from approvals.reads import inbox
from approvals.rights import access, principals
from approvals.rights.principals import Principal
from approvals.rules.roles import Group
from approvals.web import list_position, time_zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Navigation:
    """Links of the navigation: `decides` shows the inbox, `starts` a form for runs, `manages` the people."""

    decides: bool = False
    starts: bool = False
    manages: bool = False
    reads_agents: bool = False

    @property
    def acts(self) -> bool:
        """Whether the reader has any right beside reading."""
        return self.decides or self.starts or self.manages

    @property
    def reads_rules(self) -> bool:
        """Whether the reader sees policies and allowances."""
        return self.decides or self.manages


def nav(request: HttpRequest) -> dict[str, Any]:
    """Add `nav`, `inbox_count` and `admins` (whom to ask), each read when a template uses it."""

    @cache
    def principal() -> Principal | None:
        if not request.user.is_authenticated:
            return None
        return principals.principal_of(principals.actor_of(request.user))

    return {
        "nav": SimpleLazyObject(lambda: navigation_of(principal())),
        "inbox_count": SimpleLazyObject(lambda: inbox.counts(principal()).mine_text),
        "admins": SimpleLazyObject(account_list.some_admins),
        "run_views": SimpleLazyObject(
            lambda: list_position.read_run_views(request.user.get_username())
        ),
        "reader_zone": time_zone.read_choice(request).zone,
    }


def navigation_of(principal: Principal | None) -> Navigation:
    """Return the links for a reader."""
    if principal is None:
        return Navigation()
    return Navigation(
        decides=principal.has(principals.Scope.APPROVALS_DECIDE),
        starts=principal.has(principals.Scope.RUNS_START),
        manages=Group.ADMINS in principal.groups,
        reads_agents=access.reads_agents(principal),
    )
