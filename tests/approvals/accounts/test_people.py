"""Creates and changes people and tokens, also by command, and protects the last admin."""

import io
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import ProgrammingError, connection, transaction
from psycopg.errors import InsufficientPrivilege
from pytest_django import DjangoCaptureOnCommitCallbacks

from approvals.errors import LastAdmin, UnknownToken
from approvals.models import Token
from approvals.people import accounts, tokens
from approvals.people.accounts import create_person
from approvals.rights.principals import ALL_SCOPES, Scope
from approvals.rules.policy import Group
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from tests.support.calls import around
from tests.support.pages import log_in
from tests.support.seeds import PASSWORD, Cast
from tests.support.threads import together

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(("username", text) for text in ("ADA", "", "x" * 65, "New Hire", "bea\n", "..", "-x")),
        *(("username", text) for text in ("b\u0435a", "be\u200ba", "\u202eaeb")),
        *(("password", text) for text in ("short", "password1234", "84736251940", "x" * 1025)),
        ("password", "adalovelace"),
    ],
)
def test_a_confusable_name_and_a_weak_password_are_refused(field: str, text: str) -> None:
    create_person(username="ada", password=PASSWORD, groups=[])
    good = {"username": "adalovelace", "password": PASSWORD}
    with pytest.raises(InvalidInput) as caught:
        create_person(groups=[Group.REVIEWERS], **{**good, field: text})
    assert caught.value.field == field
    assert User.objects.count() == 1


def test_disabling_ends_sessions_and_tokens_for_good(
    cast: Cast, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    told: list[str] = []

    def receive(person: str, **_: object) -> None:
        told.append(person)

    beas, adas = log_in(cast.bea), log_in(cast.ada)
    _, plain = tokens.create(cast.bea, ALL_SCOPES)
    _, other = tokens.create(cast.ada, ALL_SCOPES)
    accounts.sessions_ended.connect(receive)
    for before in ([], ["bea"]):
        with django_capture_on_commit_callbacks(execute=True):
            accounts.disable("bea", actor="admin")
            assert told == before  # announced once, after the commit
    accounts.sessions_ended.disconnect(receive)
    assert told == ["bea"]
    assert Session.objects.count() == 1
    assert beas.get("/inbox/")["Location"].startswith("/login/")
    assert tokens.authenticate(plain) is None
    accounts.enable("bea", actor="admin")
    assert beas.get("/inbox/")["Location"].startswith("/login/")
    assert tokens.authenticate(plain) is None
    assert adas.get("/inbox/").status_code == 200
    assert tokens.authenticate(other) is not None


def test_the_last_active_admin_stays_one(cast: Cast) -> None:
    create_person(username="dormant", password=PASSWORD, groups=[Group.ADMINS])
    accounts.disable("dormant", actor="admin")
    with pytest.raises(LastAdmin, match="admin is the last active admin and cannot be disabled"):
        accounts.disable("admin", actor=None)
    with pytest.raises(LastAdmin, match="admin is the last active admin and cannot leave admins"):
        accounts.set_groups("admin", [Group.REVIEWERS], actor="admin")
    accounts.enable("dormant", actor="admin")
    with pytest.raises(LastAdmin, match="cannot disable their own account"):
        accounts.disable("admin", actor="admin")
    accounts.set_groups("admin", [], actor="admin")
    assert not cast.admin.groups.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("after", "acts"),
    [
        (
            "require_other_admin",
            [partial(accounts.disable, name, actor=None) for name in ("admin", "second")],
        ),
        (
            "_join",
            [
                partial(create_person, username=name, password=PASSWORD, groups=[])
                for name in ("eva", "Eva")
            ],
        ),
    ],
)
def test_of_two_acts_at_once_that_exclude_each_other_one_succeeds(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, after: str, acts: list[Callable[[], object]]
) -> None:
    """They meet right after the check, or give up: where they take turns they cannot."""
    create_person(username="second", password=PASSWORD, groups=[Group.ADMINS])
    meeting = Barrier(2)
    refused: list[Exception] = []

    def meet(*_: object) -> None:
        with suppress(BrokenBarrierError):
            meeting.wait(0.5)

    def attempt(act: Callable[[], object]) -> None:
        try:
            act()
        except (LastAdmin, InvalidInput) as error:
            refused.append(error)

    around(monkeypatch, accounts, after, after=meet)
    together([partial(attempt, act) for act in acts])
    assert len(refused) == 1
    assert User.objects.filter(is_active=True, groups__name=Group.ADMINS).exists()


def test_every_act_is_a_line_of_the_log(
    cast: Cast,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    caplog.set_level("INFO", "approvals.signed.audit")
    with django_capture_on_commit_callbacks(execute=True):
        create_person(username="newhire", password=PASSWORD, groups=[Group.REVIEWERS])
        accounts.set_groups("newhire", [], actor="admin")
        token, plain = tokens.create(cast.bea, ALL_SCOPES, actor="bea")
        tokens.revoke(token.public_id, actor="admin")
        accounts.set_password("bea", "another horse battery", actor="admin")
        accounts.disable("bea", actor="admin")
        accounts.enable("bea", actor="admin")
    acts = [one for one in caplog.records if one.name == "approvals.signed.audit"]
    assert [record.getMessage() for record in acts] == [
        "the command line added newhire to reviewers",
        "admin put newhire into no group",
        f"bea made the token {token.public_id} of bea",
        f"admin revoked the token {token.public_id} of bea",
        "admin set a new password for bea",
        "admin disabled bea",
        "admin enabled bea",
    ]
    assert plain not in caplog.text
    assert "another horse battery" not in caplog.text


# Tokens: shown once, kept as a hash, over with their owner


@pytest.fixture
def owner(bea: Actor) -> User:
    return User.objects.get(username=bea.person)


def test_the_secret_is_nowhere_in_the_row(owner: User) -> None:
    token, plain = tokens.create(owner, [Scope.RUNS_READ])
    assert tokens.authenticate(plain) == Actor(person="bea", token=token.public_id)
    assert token.scopes == ["runs:read"]
    public_id, secret = plain.removeprefix("sgn_").split("_")
    assert len(secret) * 4 >= 160
    [row] = Token.objects.values()
    assert public_id in row.values()
    assert secret not in str(row)
    assert row["last_used_at"] is not None
    assert tokens.create(owner, [Scope.RUNS_READ])[1] != plain


def test_a_token_has_an_active_owner_and_scopes_that_exist(owner: User) -> None:
    with pytest.raises(InvalidInput) as caught:
        tokens.create(owner, ["runs:read", "root"])
    assert caught.value.field == "scopes"
    owner.is_active = False
    with pytest.raises(InvalidInput, match="is disabled"):
        tokens.create(owner, ALL_SCOPES)


def test_an_invalid_token_does_not_authenticate(owner: User) -> None:
    token, plain = tokens.create(owner, ALL_SCOPES)
    other, short = "0" if plain[-1] != "0" else "1", plain[:-1]
    wrong = ("", "sgn_", short, short + other, short + "é", short + "\x00", plain + "\n")
    for text in (*wrong, plain.upper(), "sgn_" + "0" * 16 + plain[20:]):
        assert tokens.authenticate(text) is None, text
    User.objects.filter(pk=owner.pk).update(is_active=False)
    assert tokens.authenticate(plain) is None
    token.refresh_from_db()
    assert token.last_used_at is None


def test_its_owner_revokes_a_token_for_good(owner: User) -> None:
    token, plain = tokens.create(owner, ALL_SCOPES)
    for public_id, person in ((token.public_id, "ada"), ("0" * 16, "bea"), ("", "bea")):
        with pytest.raises(UnknownToken):
            tokens.revoke(public_id, actor=person, owner=person)
    assert tokens.authenticate(plain) is not None
    first = tokens.revoke(token.public_id, actor="bea", owner="bea").revoked_at
    assert first is not None
    assert tokens.authenticate(plain) is None
    assert tokens.revoke(token.public_id, actor="admin").revoked_at == first


def refused_by_postgres(statement: str) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    except ProgrammingError as refused:
        return isinstance(refused.__cause__, InsufficientPrivilege)
    return False


@pytest.mark.parametrize("moment", ["NULL", "now() + interval '1 day'"])
def test_postgres_refuses_to_make_a_revoked_token_valid_again(owner: User, moment: str) -> None:
    token, plain = tokens.create(owner, ALL_SCOPES)
    tokens.revoke(token.public_id, actor="admin")
    assert refused_by_postgres(f"UPDATE approvals_token SET revoked_at = {moment}")
    assert tokens.authenticate(plain) is None


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM approvals_token",
        "UPDATE approvals_token SET public_id = 'other'",
        "UPDATE approvals_token SET owner_id = (SELECT id FROM auth_user WHERE username = 'ada')",
        "UPDATE approvals_token SET created_at = created_at - interval '1 day'",
    ],
)
def test_postgres_keeps_a_token_with_its_owner(owner: User, ada: Actor, statement: str) -> None:
    """One that was hidden for a while could be put back as it was, with its signature."""
    tokens.create(owner, ALL_SCOPES)
    assert refused_by_postgres(statement)


# Commands: people and token, run without a terminal


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
    accounts.set_groups("cyril", [Group.REVIEWERS], actor="admin")
    accounts.set_password("cyril", "another horse battery", actor="admin")
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
        ("token revoke sgn_0123_4567", "give the public id alone"),
    ],
)
def test_one_line_error(cast: Cast, monkeypatch: pytest.MonkeyPatch, words: str, line: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("x\n"))
    before = list(User.objects.values("username", "password", "is_active"))
    with pytest.raises(CommandError) as refused:
        _run(*words.split())
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(User.objects.values("username", "password", "is_active")) == before
