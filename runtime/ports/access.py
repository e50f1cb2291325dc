"""Actors and their rights; implemented by approvals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from django.db.models import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The person behind a request. `token` is the id of the API token used, None in the browser.

    `authenticated` says how they proved in the browser who they are: `how`, and `at`, the time of the last strong proof
    if there is one.
    """

    person: str
    token: str | None = None
    authenticated: Mapping[str, str] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An SQL expression that the engine adds to a statement of its own.

    Its `parameters` have names that no other expression uses.
    """

    sql: str
    parameters: dict[str, object]


class Access(Protocol):
    """Checks the rights of actors on runs; implemented by approvals."""

    def require(self, actor: Actor, scope: str) -> None:
        """Raise Forbidden unless the actor's token has `scope` and its owner has that right.

        `scope` is one of the scopes of the API, for example `runs:start`.
        """

    def rights(self, actor: Actor) -> Expression:
        """Return the expression of the values that the actor's rights depend on, for `require_read`."""

    def require_read(self, actor: Actor, scope: str, rights: Any, *, at: datetime) -> None:
        """Raise Forbidden as `require` does, from the value that `rights` had at this time."""

    def select_readable_runs(self, actor: Actor) -> Q:
        """Return the condition on Run that holds for exactly the runs this actor may read."""

    def may_cancel(self, actor: Actor, requester: str) -> bool:
        """Say whether the actor may cancel a run of `requester` that it can read."""

    def may_fork(self, actor: Actor, requester: str) -> bool:
        """Say whether the actor may start forks of a run of `requester` that it can read."""

    def may_control(self, actor: Actor, requester: str) -> bool:
        """Say whether the actor may pause, resume and write to a run of `requester` that it can read."""

    def require_agents(self, actor: Actor) -> None:
        """Raise Forbidden unless the actor may read agents, with their tools and schemas."""

    def may_read_continuations(self, actor: Actor) -> bool:
        """Say whether the actor may read the continuation of a run that it can read."""
