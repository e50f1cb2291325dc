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
from tests.support.pages import has, log_in, shows, text, text_of

NEW = "another horse battery"


def _done(admin: Client, path: str, form: dict[str, Any] | None = None) -> str:
    """The page after a successful action."""
    answer = admin.post(path, form or {}, follow=True)
    assert [code for _, code in answer.redirect_chain] == [302]
    return text_of(answer)


@pytest.fixture
def second(cast: Cast) -> Client:
    """A second admin."""
    made = create_person(username="second", password=PASSWORD, groups=[Group.ADMINS])
    return log_in(made)


def test_the_page_lists_people_with_groups_state_and_tokens(admin: Client, cast: Cast) -> None:
    token, plain = tokens.create(cast.ada, ["runs:start"])
    gone, _ = tokens.create(cast.bea, ALL_SCOPES)
    tokens.revoke(gone.public_id, actor=None)
    User.objects.filter(username="cyril").update(is_active=False)
    page = shows(admin, "/people/", hides=[plain])
    for name, words in {
        "ada": (token.public_id, "never used", "1 token<"),
        "bea": ("revoked just now", "0 tokens<", "never logged in"),
        "cyril": ("disabled</span>", "no group"),
        "admin": ("you</span>", "last login just now"),
    }.items():
        has(_card(page, name), *words)


@pytest.mark.parametrize("name", ["ada", "bea", "cyril"])
def test_the_page_exists_for_admins_only(cast: Cast, name: str) -> None:
    client = log_in(getattr(cast, name))
    token, _ = tokens.create(cast.bea, ALL_SCOPES)
    assert client.get("/people/").status_code == 404
    for act in ("groups", "disable", "enable", "password", f"tokens/{token.public_id}/revoke"):
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
    opened = '<details class="card person" id="newhire" open>'
    has(_done(admin, "/people/add/", form), "newhire is added.", opened)
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
    kept = f'name="username" value="{form["username"]}"'
    page = has(text_of(admin.post("/people/add/", form), 422), said, kept, hides=[NEW])
    adding = page.split("/people/add/")[1].split("</form>")[0]
    assert ('value="reviewers" checked' in adding) == ("group" not in change)
    assert User.objects.count() == 4


def test_groups_are_saved(admin: Client, cast: Cast) -> None:
    page = _done(admin, "/people/cyril/groups/", {"group": ["reviewers"]})
    assert 'value="reviewers" checked' in _card(page, "cyril")
    _done(admin, "/people/cyril/groups/")
    assert not cast.cyril.groups.exists()


def test_a_second_admin_confirms_the_assignment_of_the_first(admin: Client, second: Client) -> None:
    form = "/people/cyril/rights/reviewers/confirm/"
    card = _card(_done(admin, "/people/cyril/groups/", {"group": ["reviewers"]}), "cyril")
    limits = ("Cannot decide before <time", "Cannot decide in runs of <bdi>admin</bdi>")
    given = "given by <bdi>admin</bdi> just now"
    has(card, given, *limits, "You cannot confirm this", hides=[form])
    has(_card(text(second, "/people/"), "cyril"), form)
    for seq in ("x", "9" * 5_000):  # the second is too long for int()
        has(text_of(second.post(form, {"seq": seq}), 409), "changed since you saw it")
    card = _card(_done(second, form, {"seq": "1"}), "cyril")
    has(card, "confirmed by <bdi>second</bdi>", hides=["Cannot decide"])


def test_a_new_admin_waits_for_the_second(admin: Client, second: Client) -> None:
    card = _card(_done(admin, "/people/cyril/groups/", {"group": ["admins"]}), "cyril")
    has(card, "waits for a second admin")


def test_a_group_without_a_giver_is_shown_as_such(admin: Client, cast: Cast) -> None:
    cast.cyril.groups.add(GroupRow.objects.get(name=Group.REVIEWERS))
    has(_card(text(admin, "/people/"), "cyril"), "There is no record of who gave this")
    card = _card(_done(admin, "/people/cyril/groups/", {"group": ["reviewers"]}), "cyril")
    has(card, "given by <bdi>admin</bdi> just now")


def test_the_last_admin_stays(admin: Client, cast: Cast) -> None:
    page = text_of(admin.post("/people/admin/groups/", {"group": ["reviewers"]}), 409)
    has(_card(page, "admin"), "admin is the last active admin and cannot leave admins.")
    page = text_of(admin.post("/people/admin/disable/"), 409)
    has(page, "cannot disable their own account")
    text(admin, "/people/")


def test_disabling_logs_out_and_enabling_lets_in(admin: Client, bea: Client) -> None:
    page = _done(admin, "/people/bea/disable/")
    has(page, "bea is disabled", "/people/bea/enable/", hides=["/people/bea/disable/"])
    assert bea.get("/inbox/")["Location"].startswith("/login/")
    _done(admin, "/people/bea/enable/")
    assert bea.post("/login/", {"username": "bea", "password": PASSWORD}).status_code == 302


def test_a_new_password_ends_open_sessions(admin: Client, bea: Client, cast: Cast) -> None:
    weak = admin.post("/people/bea/password/", {"password": "bea", "again": "bea"})
    page = text_of(weak, 422)
    has(_card(page, "bea"), "The password is not good enough", 'aria-invalid="true"')
    has(_card(page, "ada"), hides=['aria-invalid="true"'])
    text(bea, "/inbox/")
    _done(admin, "/people/bea/password/", {"password": NEW, "again": NEW})
    assert bea.get("/inbox/")["Location"].startswith("/login/")
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(NEW)


def test_ones_own_password_takes_the_one_of_now(admin: Client, cast: Cast) -> None:
    answer = admin.post("/people/admin/password/", {"password": NEW, "again": NEW})
    assert answer["Location"] == "/account/"
    cast.admin.refresh_from_db()
    assert cast.admin.check_password(PASSWORD)


def test_an_admin_cannot_make_a_token_of_another(admin: Client, cast: Cast) -> None:
    """Refuse the token, because it would decide as its owner."""
    form = {"scope": ["approvals:decide"]}
    assert admin.post("/people/bea/tokens/add/", form).status_code == 404
    shows(admin, "/people/?open=bea", hides=['name="scope"'])
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
    page = shows(admin, "/people/?open=cyril", "2 more people fit")
    assert re.findall('person" id="([a-z]+)"', page) == ["ada", "admin", "cyril"]
    assert re.findall('person" id="([a-z]+)"', text(admin, "/people/?q=BE")) == ["bea"]
    shows(admin, "/people/?q=<script>", "No match")
    shows(admin, "/people/?q=%00&open=%00", hides=["\x00"])


def test_more_people_take_no_more_queries(
    admin: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        person = create_person(username=f"p{number}", password=PASSWORD, groups=[Group.REVIEWERS])
        tokens.create(person, ALL_SCOPES)
    with django_assert_max_num_queries(12):
        text(admin, "/people/")


def _card(page: str, name: str) -> str:
    return page.split(f'person" id="{name}"')[1].split('class="card person"', maxsplit=1)[0]
