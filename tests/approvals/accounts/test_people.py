"""Creates and changes people, and protects the last admin."""

import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Barrier, BrokenBarrierError

import pytest
from django.apps import apps
from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from pytest_django import DjangoCaptureOnCommitCallbacks

from approvals.accounts import people, tokens
from approvals.accounts.people import create_person
from approvals.errors import ApprovalError, LastAdmin
from approvals.models import Token
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
from runtime.errors import InvalidInput
from tests.support.cast import PASSWORD, Cast
from tests.support.pages import log_in

pytestmark = pytest.mark.django_db


def test_a_migration_adds_missing_groups_only() -> None:
    GroupRow.objects.all().delete()
    kept = GroupRow.objects.create(name=Group.REVIEWERS)
    migration = importlib.import_module("approvals.migrations.0003_groups")
    migration.create_groups(apps, None)
    assert GroupRow.objects.get(name=Group.REVIEWERS) == kept
    assert set(GroupRow.objects.values_list("name", flat=True)) == set(Group)


def test_a_person_can_log_in_and_is_in_their_groups() -> None:
    ada = create_person(
        username="ada", password=PASSWORD, groups=[Group.REQUESTERS, Group.REVIEWERS]
    )
    assert ada.check_password(PASSWORD)
    assert set(ada.groups.values_list("name", flat=True)) == {"requesters", "reviewers"}
    assert not ada.is_superuser
    assert not ada.is_staff


WRONG_NAMES = (
    *("", "x" * 65, "New Hire", "b\u0435a", "be\u200ba", "bea\n", "\u202eaeb"),  # one is Cyrillic
    *("bea\x00", ".", "..", "-x", "a/b", "ä"),
)


@pytest.mark.parametrize("name", ["ada", "Ada", "ADA", *WRONG_NAMES])
def test_a_name_that_could_be_mistaken_is_refused(name: str) -> None:
    create_person(username="ada", password=PASSWORD, groups=[])
    with pytest.raises(InvalidInput) as caught:
        create_person(username=name, password=PASSWORD, groups=[Group.REVIEWERS])
    assert caught.value.field == "username"
    assert User.objects.count() == 1


@pytest.mark.parametrize(
    "password", ["", "short", "password1234", "84736251940", "adalovelace", "x" * 1025]
)
def test_a_weak_password_is_refused(password: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        create_person(username="adalovelace", password=password, groups=[])
    assert caught.value.field == "password"


def test_disabling_ends_sessions_and_tokens_for_good(cast: Cast) -> None:
    beas, adas = log_in(cast.bea), log_in(cast.ada)
    _, plain = tokens.create(cast.bea, ALL_SCOPES)
    _, other = tokens.create(cast.ada, ALL_SCOPES)
    people.disable("bea", actor="admin")
    assert Session.objects.count() == 1
    assert beas.get("/inbox/")["Location"].startswith("/login/")
    assert tokens.authenticate(plain) is None
    people.enable("bea", actor="admin")
    assert beas.get("/inbox/")["Location"].startswith("/login/")
    assert tokens.authenticate(plain) is None
    assert adas.get("/inbox/").status_code == 200
    assert tokens.authenticate(other) is not None


def test_a_session_of_a_disabled_person_is_logged_out(cast: Cast) -> None:
    client = log_in(cast.bea)
    User.objects.filter(username="bea").update(is_active=False)
    assert client.get("/inbox/")["Location"].startswith("/login/")


def test_disabling_is_told_once_after_it_is_committed(
    cast: Cast, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    told: list[str] = []

    def hear(person: str, **_: object) -> None:
        told.append(person)

    people.sessions_ended.connect(hear)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            people.disable("bea", actor="admin")
            assert told == []
        with django_capture_on_commit_callbacks(execute=True):
            people.disable("bea", actor="admin")
    finally:
        people.sessions_ended.disconnect(hear)
    assert told == ["bea"]


def test_the_last_active_admin_stays_one(cast: Cast) -> None:
    create_person(username="dormant", password=PASSWORD, groups=[Group.ADMINS])
    people.disable("dormant", actor="admin")
    with pytest.raises(LastAdmin, match="admin is the last active admin and cannot be disabled"):
        people.disable("admin", actor=None)
    with pytest.raises(LastAdmin, match="admin is the last active admin and cannot leave admins"):
        people.set_groups("admin", [Group.REVIEWERS], actor="admin")
    people.enable("dormant", actor="admin")
    people.set_groups("admin", [], actor="admin")
    assert not cast.admin.groups.exists()


def test_admins_do_not_disable_themselves(cast: Cast) -> None:
    create_person(username="second", password=PASSWORD, groups=[Group.ADMINS])
    with pytest.raises(LastAdmin, match="cannot disable their own account"):
        people.disable("admin", actor="admin")


@pytest.mark.django_db(transaction=True)
def test_two_admins_who_disable_each_other_at_once_leave_one(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_person(username="second", password=PASSWORD, groups=[Group.ADMINS])
    _meet_after(monkeypatch, "_require_other_admin")
    done = _concurrently(
        partial(people.disable, "admin", actor="second"),
        partial(people.disable, "second", actor="admin"),
    )
    assert [type(one) for one in done if one is not None] == [LastAdmin]
    assert User.objects.filter(is_active=True, groups__name=Group.ADMINS).count() == 1


@pytest.mark.django_db(transaction=True)
def test_concurrent_creations_of_one_name_succeed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _meet_after(monkeypatch, "_join")
    done = _concurrently(
        *(
            partial(create_person, username=name, password=PASSWORD, groups=[])
            for name in ("bea", "Bea")
        )
    )
    assert [type(one) for one in done if one is not None] == [InvalidInput]
    assert User.objects.count() == 1


def _meet_after(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have two threads meet right after this function, or give up: where they take turns they cannot."""
    real, meeting = getattr(people, name), Barrier(2)

    def slowed(*given: object) -> None:
        real(*given)
        with suppress(BrokenBarrierError):
            meeting.wait(0.5)

    monkeypatch.setattr(people, name, slowed)


def _concurrently(*acts: Callable[[], object]) -> list[Exception | None]:
    """Call each of these in a thread of its own, and return the raised errors."""

    def run(act: Callable[[], object]) -> Exception | None:
        try:
            act()
        except (ApprovalError, InvalidInput) as refused:
            return refused
        else:
            return None
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_a_new_password_ends_every_session_but_the_one_to_keep(cast: Cast) -> None:
    keep, other = log_in(cast.bea), log_in(cast.bea)
    _, plain = tokens.create(cast.bea, ALL_SCOPES)
    changed = people.set_password(
        "bea", "another horse battery", actor="bea", keep=keep.session.session_key
    )
    assert changed.check_password("another horse battery")
    assert [row.session_key for row in Session.objects.all()] == [keep.session.session_key]
    assert other.get("/inbox/")["Location"].startswith("/login/")
    assert Token.objects.get(revoked_at=None).owner == cast.bea
    assert tokens.authenticate(plain) is not None


def test_every_act_is_a_line_of_the_log(
    cast: Cast,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    caplog.set_level("INFO", "approvals.accounts.log")
    with django_capture_on_commit_callbacks(execute=True):
        create_person(username="newhire", password=PASSWORD, groups=[Group.REVIEWERS])
        people.set_groups("newhire", [], actor="admin")
        token, plain = tokens.create(cast.bea, ALL_SCOPES, actor="bea")
        tokens.revoke(token.public_id, actor="admin")
        people.set_password("bea", "another horse battery", actor="admin")
        people.disable("bea", actor="admin")
        people.enable("bea", actor="admin")
    acts = [one for one in caplog.records if one.name == "approvals.accounts.log"]
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
