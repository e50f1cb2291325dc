"""The account page: password changes, tokens, and logging out everywhere."""

import re

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_out
from django.test import Client

from approvals.accounts import tokens
from approvals.models import LoginFailures, Token
from approvals.permissions.scopes import ALL_SCOPES, Scope
from tests.support.cast import PASSWORD, Cast
from tests.support.pages import has, log_in, shows, text, text_of

NEW = "another horse battery"
CHANGE = {"current": PASSWORD, "password": NEW, "again": NEW}


def test_the_account_page_shows_name_and_permissions(ada: Client, cyril: Client) -> None:
    rights = ("start runs of agents", "decide on the calls of agents")
    scopes = (f'name="scope" value="{scope}"' for scope in Scope)
    shows(ada, "/account/", "<b><bdi>ada</bdi></b>", *rights, *scopes)
    shows(cyril, "/account/", "You are in no group", hides=rights)


def test_a_new_password_ends_other_sessions_and_keeps_this_one(bea: Client, cast: Cast) -> None:
    other, before = log_in(cast.bea), bea.session.session_key
    assert bea.post("/account/password/", CHANGE)["Location"] == "/account/"
    shows(bea, "/account/", "Your password is changed")
    assert bea.session.session_key != before
    assert other.get("/account/")["Location"].startswith("/login/")
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(NEW)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"current": "wrong"}, "That is not your password."),
        ({"again": "other"}, "The new password was not typed the same way twice."),
        ({"password": "bea", "again": "bea"}, "The new password is not good enough"),
    ],
)
def test_a_refused_password_change_says_why(
    bea: Client, cast: Cast, change: dict[str, str], said: str
) -> None:
    answer = bea.post("/account/password/", {**CHANGE, **change})
    has(text_of(answer, 422), said, hides=[PASSWORD])
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(PASSWORD)
    assert LoginFailures.objects.exists() is ("current" in change)


def test_guesses_of_the_current_password_are_throttled(bea: Client, cast: Cast) -> None:
    guesses = [{**CHANGE, "current": f"guess {n}"} for n in range(8)]
    codes = [bea.post("/account/password/", guess).status_code for guess in guesses]
    assert codes == [422] * 5 + [429] * 3
    has(text_of(bea.post("/account/password/", CHANGE), 429), "Try again at <time")
    text(bea, "/inbox/")
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(PASSWORD)


def test_a_token_is_shown_once_and_revoked_by_its_owner(bea: Client, cast: Cast) -> None:
    for scopes, said in ((["root"], "unknown: root"), ([], "choose at least one")):
        has(text_of(bea.post("/account/tokens/add/", {"scope": scopes}), 422), said)
    answer = bea.post("/account/tokens/add/", {"scope": ["runs:read", "approvals:read"]})
    found = re.search(r"aby_[0-9a-f]{16}_[0-9a-f]{64}", answer.content.decode())
    assert found is not None
    actor = tokens.authenticate(found[0])
    assert actor is not None
    assert actor.person == "bea"
    assert Token.objects.get().scopes == ["approvals:read", "runs:read"]
    other, _ = tokens.create(cast.ada, ALL_SCOPES)
    shows(bea, "/account/", str(actor.token), hides=[found[0], other.public_id])
    assert found[0].rpartition("_")[2] not in str(bea.session.items())
    assert bea.post(f"/account/tokens/{actor.token}/revoke/").status_code == 302
    assert tokens.authenticate(found[0]) is None
    shows(bea, "/account/", "revoked just now")


def test_logging_out_everywhere_ends_every_session_of_ones_own(
    bea: Client, ada: Client, cast: Cast
) -> None:
    other, left = log_in(cast.bea), []

    def hear(user: User, **_: object) -> None:
        left.append(user.username)

    user_logged_out.connect(hear)
    try:
        assert bea.post("/account/log-out-everywhere/")["Location"] == "/login/"
    finally:
        user_logged_out.disconnect(hear)
    assert left == ["bea"]
    for client in (bea, other):
        assert client.get("/account/")["Location"].startswith("/login/")
    text(ada, "/account/")
