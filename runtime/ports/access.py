"""Who acts, and what they may see; implemented by approvals."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django.db.models import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whoever asks for something through a door. `token` is the id of the API token used, None in the browser."""

    person: str
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An SQL expression that a statement of the engine's reads beside its own.

    `parameters` are named so that they meet none of another expression.
    """

    sql: str
    parameters: dict[str, object]


class Access(Protocol):
    """Who may do and read what about runs; implemented by approvals."""

    def require(self, actor: Actor, scope: str) -> None:
        """Raise Forbidden unless the actor's token has `scope` and its owner has that right.

        `scope` is one of the scopes of the API, for example `runs:start`.
        """

    def rights(self, actor: Actor) -> Expression:
        """Return the expression of what the actor's rights rest on, for `require_read`."""

    def require_read(self, actor: Actor, scope: str, rights: Any, *, at: datetime) -> None:
        """Raise Forbidden as `require` does, by the value that `rights` had at this time."""

    def readable_runs(self, actor: Actor) -> Q:
        """The condition on Run that holds for exactly the runs this actor may read."""

    def may_cancel(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may cancel a run of `requester` that it can read."""

    def may_fork(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may start forks of a run of `requester` that it can read."""

    def may_control(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may pause, resume and write to a run of `requester` that it can read."""

    def require_agents(self, actor: Actor) -> None:
        """Raise Forbidden unless the actor may read agents, with their tools and schemas."""

    def reads_continuations(self, actor: Actor) -> bool:
        """Whether the actor may read the continuation of a run that it can read."""
