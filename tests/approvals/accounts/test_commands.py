"""`manage.py people` and `manage.py token`, run without a terminal."""

import io
import re
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from approvals.accounts import people, tokens
from approvals.models import Token
from approvals.policy import Group
from runtime.ports.access import Actor
from tests.support.cast import Cast

pytestmark = pytest.mark.django_db


def _run(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_a_password_is_made_up_or_comes_from_a_file_or_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = _run("people", "add", "root", "--group", "admins", "--generate")
    password = re.search("^Password: (.+)$", said, re.MULTILINE)
    assert password is not None
    root = User.objects.get(username="root")
    assert root.check_password(password[1])
    assert [group.name for group in root.groups.all()] == ["admins"]

    path = tmp_path / "password"
    path.write_text("correct horse battery\r\n")
    said = _run("people", "add", "ada", "--password-file", str(path))
    monkeypatch.setattr("sys.stdin", io.StringIO(" spaces are mine \n"))
    said += _run("people", "add", "bea", "--password-stdin")
    assert User.objects.get(username="ada").check_password("correct horse battery")
    assert User.objects.get(username="bea").check_password(" spaces are mine ")
    assert "horse" not in said
    assert "spaces" not in said


def test_groups_and_state_of_a_person_change_over_time(cast: Cast) -> None:
    _run("people", "group", "cyril", "requesters", "reviewers")
    assert cast.cyril.groups.count() == 2
    _run("people", "group", "cyril", "--none")
    assert cast.cyril.groups.count() == 0
    _run("people", "disable", "cyril")
    assert re.search(
        "^cyril\tdisabled\tgroups: none\tlast login: never", _run("people", "list"), re.MULTILINE
    )
    _run("people", "enable", "cyril")
    assert "Password: " in _run("people", "password", "cyril", "--generate")
    cast.cyril.refresh_from_db()
    assert cast.cyril.is_active


def test_the_command_confirms_pending_assignments(cast: Cast) -> None:
    people.set_groups("cyril", [Group.REVIEWERS], actor="admin")
    people.set_password("cyril", "another horse battery", actor="admin")
    assert "to confirm: password, reviewers" in _run("people", "list")
    with pytest.raises(CommandError, match="admin knows this password"):
        _run("people", "confirm", "cyril")
    with pytest.raises(CommandError, match="these can be confirmed for cyril: password, reviewers"):
        _run("people", "confirm", "cyril", "admins")
    assert _run("people", "confirm", "cyril", "reviewers") == "reviewers of cyril is confirmed.\n"
    assert "to confirm: password\n" in _run("people", "list")


def test_a_token_is_printed_once_and_revoked_by_its_public_id(cast: Cast) -> None:
    plain = _run("token", "create", "ada", "--scope", "runs:start", "--scope", "runs:read").strip()
    token = Token.objects.get()
    assert tokens.authenticate(plain) == Actor(person="ada", token=token.public_id)
    listed = _run("token", "list", "ada")
    assert listed.startswith(f"{token.public_id}\tada\tvalid\t")
    assert plain not in listed
    assert _run("token", "list", "bea") == ""
    _run("token", "revoke", token.public_id)
    assert tokens.authenticate(plain) is None
    assert "revoked" in _run("token", "list")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("people add ADA --generate", "username is taken"),
        ("people add dora", "give --password-file, --password-stdin or --generate"),
        ("people add dora --password-file /nowhere", "/nowhere cannot be read: No such file"),
        ("people add dora --password-stdin", "password is not good enough: This password is too"),
        ("people group ada admins --none", "give the groups, or --none"),
        ("people group ada kings", "no such group: kings; there are admins, requesters, reviewers"),
        ("people disable dora", "There is no person dora."),
        ("people disable admin", "admin is the last active admin"),
        ("token create dora --all", "There is no person dora."),
        ("token revoke 0123", "There is no token 0123."),
        ("token revoke aby_0123_4567", "give the public id alone"),
    ],
)
def test_a_refusal_is_one_line(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, words: str, line: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("x\n"))
    before = list(User.objects.values("username", "password", "is_active"))
    with pytest.raises(CommandError) as refused:
        _run(*words.split())
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(User.objects.values("username", "password", "is_active")) == before
