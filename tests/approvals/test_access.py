"""Who may change a run: the scopes of the token, the groups of its person, and the requester. Without a database."""

from collections.abc import Callable

import pytest

from approvals.rights import principals
from approvals.rights.access import AccessService
from approvals.rights.principals import ALL_SCOPES, Principal, Scope
from approvals.rules.policy import Group
from runtime.ports.access import Actor

access = AccessService()

RIGHTS: dict[str, Callable[[Actor, str], bool]] = {
    Scope.RUNS_CANCEL: access.may_cancel,
    Scope.RUNS_CONTROL: access.may_control,
    Scope.RUNS_START: access.may_fork,
}


@pytest.mark.parametrize("scope", RIGHTS)
@pytest.mark.parametrize(
    ("person", "group", "without", "allowed"),
    [
        ("ada", Group.REQUESTERS, None, True),
        ("dan", Group.REQUESTERS, None, False),
        ("admin", Group.ADMINS, None, True),
        ("admin", Group.ADMINS, Scope.ADMIN, False),
        ("ada", Group.REQUESTERS, Scope.ADMIN, True),
    ],
)
def test_the_requester_and_admins_may_change_a_run(
    person: str,
    group: str,
    without: str | None,
    allowed: bool,
    scope: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for scopes, expected in (
        (ALL_SCOPES - {without}, allowed),
        (ALL_SCOPES - {without, scope}, False),
    ):
        principal = Principal(person=person, groups=frozenset({group}), scopes=frozenset(scopes))
        monkeypatch.setattr(principals, "find_principal", lambda _, principal=principal: principal)
        assert RIGHTS[scope](Actor(person=person), "ada") is expected


def test_a_fork_needs_the_right_to_start_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    reviewer = Principal(person="ada", groups=frozenset({Group.REVIEWERS}), scopes=ALL_SCOPES)
    monkeypatch.setattr(principals, "find_principal", lambda _: reviewer)
    answers = {scope: may(Actor(person="ada"), "ada") for scope, may in RIGHTS.items()}
    assert answers == {"runs:cancel": True, "runs:control": True, "runs:start": False}
