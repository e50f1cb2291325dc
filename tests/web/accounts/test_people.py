"""The People page: actions of admins, refusals, and 404 for everyone else."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from approvals.accounts import listing, tokens
from approvals.accounts.people import create_person
from approvals.models import Token
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
from runtime.errors import Forbidden
from tests.support.cast import PASSWORD, Cast

NEW = "another horse battery"


def _page(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status
    return str(answer.content.decode())


def _done(admin: Client, path: str, form: dict[str, Any] | None = None) -> str:
    """The page after a successful action."""
    answer = admin.post(path, form or {}, follow=True)
    assert [code for _, code in answer.redirect_chain] == [302]
    return _page(answer)


def test_the_page_lists_people_with_groups_state_and_tokens(admin: Client, cast: Cast) -> None:
    token, plain = tokens.create(cast.ada, ["runs:start"])
    gone, _ = tokens.create(cast.bea, ALL_SCOPES)
    tokens.revoke(gone.public_id, actor=None)
    User.objects.filter(username="cyril").update(is_active=False)
    page = _page(admin.get("/people/"))
    cards = {name: _card(page, name) for name in ("ada", "admin", "bea", "cyril")}
    assert token.public_id in cards["ada"]
    assert "never used" in cards["ada"]
    assert "1 token<" in cards["ada"]
    assert plain not in page
    assert "revoked just now" in cards["bea"]
    assert "0 tokens<" in cards["bea"]
    assert "disabled</span>" in cards["cyril"]
    assert "no group" in cards["cyril"]
    assert "you</span>" in cards["admin"]
    assert "last login just now" in cards["admin"]
    assert "never logged in" in cards["bea"]


@pytest.mark.parametrize("name", ["ada", "bea", "cyril"])
def test_the_page_exists_for_admins_only(cast: Cast, name: str) -> None:
    client = Client()
    client.force_login(getattr(cast, name))
    token, _ = tokens.create(cast.bea, ALL_SCOPES)
    assert client.get("/people/").status_code == 404
    for act in (
        "groups",
        "disable",
        "enable",
        "password",
        f"tokens/{token.public_id}/revoke",
    ):
        assert client.post(f"/people/bea/{act}/", {"group": "admins"}).status_code == 404
    assert client.post("/people/add/", {"username": "mine"}).status_code == 404
    assert User.objects.count() == 4
    assert Token.objects.get().revoked_at is None
    assert "/people/" not in client.get("/account/").content.decode()


def test_acts_take_a_post_and_a_token_of_the_page(admin: Client, cast: Cast) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(cast.admin)
    for act in ("groups", "disable", "enable", "password"):
        assert admin.get(f"/people/bea/{act}/").status_code == 405
        assert strict.post(f"/people/bea/{act}/").status_code == 403
    cast.bea.refresh_from_db()
    assert cast.bea.is_active


def test_a_person_is_added_and_can_log_in(admin: Client) -> None:
    form = {
        "username": "newhire",
        "password": NEW,
        "again": NEW,
        "group": ["requesters", "reviewers"],
    }
    page = _done(admin, "/people/add/", form)
    assert "newhire is added." in page
    assert '<details class="card person" id="newhire" open>' in page
    assert Client().post("/login/", {"username": "newhire", "password": NEW})["Location"] == "/"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"username": "BEA"}, "The username is taken"),
        ({"username": "b\u0435a"}, "The username may hold only"),
        ({"username": ""}, "The username must have 1 to 64 characters"),
        (
            {"password": "short", "again": "short"},
            "The password is not good enough: This password is too short",
        ),
        ({"again": "something else"}, "The password was not typed the same way twice"),
        ({"group": ["kings"]}, "The group must be one of those on the page"),
    ],
)
def test_a_refused_person_shows_the_reason_and_the_input(
    admin: Client, change: dict[str, Any], said: str
) -> None:
    form = {"username": "newhire", "password": NEW, "again": NEW, "group": ["reviewers"], **change}
    page = _page(admin.post("/people/add/", form), 422)
    assert said in page
    assert f'name="username" value="{form["username"]}"' in page
    adding = page.split("/people/add/")[1].split("</form>")[0]
    assert ('value="reviewers" checked' in adding) == ("group" not in change)
    assert NEW not in page
    assert User.objects.count() == 4


def test_groups_are_saved(admin: Client, cast: Cast) -> None:
    page = _done(admin, "/people/cyril/groups/", {"group": ["reviewers"]})
    assert 'value="reviewers" checked' in _card(page, "cyril")
    _done(admin, "/people/cyril/groups/")
    assert not cast.cyril.groups.exists()


def test_a_second_admin_confirms_the_assignment_of_the_first(admin: Client, cast: Cast) -> None:
    second = create_person(username="second", password=PASSWORD, groups=[Group.ADMINS])
    other = Client()
    other.force_login(second)
    card = _card(_done(admin, "/people/cyril/groups/", {"group": ["reviewers"]}), "cyril")
    assert "given by <bdi>admin</bdi> just now" in card
    assert "Cannot decide before <time" in card
    assert "Cannot decide in runs of <bdi>admin</bdi>" in card
    assert "You cannot confirm this" in card
    form = "/people/cyril/rights/reviewers/confirm/"
    assert form not in card
    assert form in _card(_page(other.get("/people/")), "cyril")
    for seq in ("x", "9" * 5_000):  # the second is too long for int()
        assert "changed since you saw it" in _page(other.post(form, {"seq": seq}), 409)
    card = _card(_done(other, form, {"seq": "1"}), "cyril")
    assert "confirmed by <bdi>second</bdi>" in card
    assert "Cannot decide" not in card


def test_a_new_admin_waits_for_the_second(admin: Client, cast: Cast) -> None:
    create_person(username="second", password=PASSWORD, groups=[Group.ADMINS])
    card = _card(_done(admin, "/people/cyril/groups/", {"group": ["admins"]}), "cyril")
    assert "waits for a second admin" in card


def test_a_group_without_a_giver_is_shown_as_such(admin: Client, cast: Cast) -> None:
    cast.cyril.groups.add(GroupRow.objects.get(name=Group.REVIEWERS))
    assert "There is no record of who gave this" in _card(_page(admin.get("/people/")), "cyril")
    card = _card(_done(admin, "/people/cyril/groups/", {"group": ["reviewers"]}), "cyril")
    assert "given by <bdi>admin</bdi> just now" in card


def test_the_last_admin_stays(admin: Client, cast: Cast) -> None:
    page = _page(admin.post("/people/admin/groups/", {"group": ["reviewers"]}), 409)
    assert "admin is the last active admin and cannot leave admins." in _card(page, "admin")
    assert "cannot disable their own account" in _page(admin.post("/people/admin/disable/"), 409)
    assert admin.get("/people/").status_code == 200


def test_disabling_logs_out_and_enabling_lets_in(admin: Client, bea: Client, cast: Cast) -> None:
    _, plain = tokens.create(cast.bea, ALL_SCOPES)
    page = _done(admin, "/people/bea/disable/")
    assert "bea is disabled" in page
    assert "/people/bea/enable/" in page
    assert "/people/bea/disable/" not in page
    assert bea.get("/inbox/")["Location"].startswith("/login/")
    assert tokens.authenticate(plain) is None
    _done(admin, "/people/bea/enable/")
    assert bea.get("/inbox/")["Location"].startswith("/login/")
    assert bea.post("/login/", {"username": "bea", "password": PASSWORD}).status_code == 302


def test_a_new_password_ends_open_sessions(admin: Client, bea: Client, cast: Cast) -> None:
    _done(admin, "/people/bea/password/", {"password": NEW, "again": NEW})
    assert bea.get("/inbox/")["Location"].startswith("/login/")
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(NEW)


def test_a_password_that_cannot_be_is_refused_where_it_was_typed(admin: Client, cast: Cast) -> None:
    page = _page(admin.post("/people/bea/password/", {"password": "bea", "again": "bea"}), 422)
    assert "The password is not good enough" in _card(page, "bea")
    assert 'aria-invalid="true"' in _card(page, "bea")
    assert 'aria-invalid="true"' not in _card(page, "ada")
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(PASSWORD)


def test_ones_own_password_takes_the_one_of_now(admin: Client, cast: Cast) -> None:
    answer = admin.post("/people/admin/password/", {"password": NEW, "again": NEW})
    assert answer["Location"] == "/account/"
    cast.admin.refresh_from_db()
    assert cast.admin.check_password(PASSWORD)


def test_an_admin_cannot_make_a_token_of_another(admin: Client, cast: Cast) -> None:
    """Refuse the token, because it would decide as its owner."""
    form = {"scope": ["approvals:decide"]}
    assert admin.post("/people/bea/tokens/add/", form).status_code == 404
    assert 'name="scope"' not in _page(admin.get("/people/?open=bea"))
    with pytest.raises(Forbidden) as refused:
        tokens.create(cast.bea, ALL_SCOPES, actor="admin")
    assert refused.value.code == "not_owner"
    assert not Token.objects.exists()


def test_a_token_is_revoked(admin: Client, cast: Cast) -> None:
    token, plain = tokens.create(cast.bea, ALL_SCOPES)
    assert admin.post(f"/people/ada/tokens/{token.public_id}/revoke/").status_code == 404
    assert tokens.authenticate(plain) is not None
    page = _done(admin, f"/people/bea/tokens/{token.public_id}/revoke/")
    assert f"Token {token.public_id} of bea is revoked." in page
    assert tokens.authenticate(plain) is None


def test_an_unknown_person_is_not_found(admin: Client) -> None:
    for act in ("groups", "disable", "enable", "tokens/0123/revoke"):
        assert admin.post(f"/people/dora/{act}/").status_code == 404
    form = {"password": NEW, "again": NEW}
    assert admin.post("/people/dora/password/", form).status_code == 404


def test_people_are_found_by_name_and_the_rest_is_counted(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LIMIT", 2)
    page = _page(admin.get("/people/?open=cyril"))
    assert re.findall('person" id="([a-z]+)"', page) == ["ada", "admin", "cyril"]
    assert "2 more people fit" in page
    assert re.findall('person" id="([a-z]+)"', _page(admin.get("/people/?q=BE"))) == ["bea"]
    assert "No match" in _page(admin.get("/people/?q=<script>"))
    assert "\x00" not in _page(admin.get("/people/?q=%00&open=%00"))


def test_more_people_take_no_more_queries(
    admin: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        person = create_person(username=f"p{number}", password=PASSWORD, groups=[Group.REVIEWERS])
        tokens.create(person, ALL_SCOPES)
    with django_assert_max_num_queries(12):
        _page(admin.get("/people/"))


def _card(page: str, name: str) -> str:
    return page.split(f'person" id="{name}"')[1].split('class="card person"', maxsplit=1)[0]
