"""Defines the scopes of tokens, and which groups may use them."""

from collections.abc import Mapping
from enum import StrEnum

from approvals.rules.roles import Group


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
    Group.REQUESTERS: frozenset({Scope.RUNS_START}),
    Group.REVIEWERS: frozenset({Scope.APPROVALS_DECIDE}),
    Group.ADMINS: frozenset(
        {Scope.ADMIN, Scope.RUNS_START, Scope.EVENTS_SEND, Scope.INSTANCES_MANAGE}
    ),
}
# A person with one of these rights may read agents.
AGENT_READERS = frozenset({Scope.RUNS_START, Scope.APPROVALS_DECIDE, Scope.ADMIN})


def rights_of(groups: frozenset[str]) -> frozenset[str]:
    """Return the scopes that a member of `groups` can use."""
    rights = set(_EVERYONE)
    for name in groups:
        rights |= _RIGHTS.get(name, frozenset())
    return frozenset(rights)
