"""The account page: its texts, password changes, tokens, and logging out everywhere."""

import re
from typing import Any

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


def _change(client: Client, **change: str) -> Any:
    form = {"current": PASSWORD, "password": NEW, "again": NEW, **change}
    return client.post("/account/password/", form)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ada", ["start runs of agents", "decide on the calls of agents"]),
        ("bea", ["decide on the calls of agents"]),
        ("cyril", ["You are in no group"]),
        ("admin", ["manage people and tokens", "but decide nothing"]),
    ],
)
def test_the_account_page_shows_name_and_permissions(
    cast: Cast, name: str, words: list[str]
) -> None:
    page = shows(log_in(getattr(cast, name)), "/account/", f"<b><bdi>{name}</bdi></b>", *words)
    assert ("start runs of agents" in page) == (name == "ada")
    has(page, *(f'name="scope" value="{scope}"' for scope in Scope))


def test_a_new_password_ends_other_sessions_and_keeps_this_one(bea: Client, cast: Cast) -> None:
    other = log_in(cast.bea)
    before = bea.session.session_key
    assert _change(bea)["Location"] == "/account/"
    shows(bea, "/account/", "Your password is changed")
    assert bea.session.session_key != before
    assert other.get("/account/")["Location"].startswith("/login/")
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(NEW)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"current": "wrong"}, "That is not your password."),
        ({"current": ""}, "That is not your password."),
        ({"again": "other"}, "The new password was not typed the same way twice."),
        ({"password": "bea", "again": "bea"}, "The new password is not good enough"),
    ],
)
def test_a_refused_password_change_says_why(
    bea: Client, cast: Cast, change: dict[str, str], said: str
) -> None:
    has(text_of(_change(bea, **change), 422), said, hides=[PASSWORD])
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(PASSWORD)


def test_guesses_of_the_current_password_are_throttled(bea: Client, cast: Cast) -> None:
    _change(bea, again="other")
    assert not LoginFailures.objects.exists()  # the right password is not counted
    codes = [_change(bea, current=f"guess {n}").status_code for n in range(8)]
    assert codes == [422] * 5 + [429] * 3
    has(text_of(_change(bea), 429), "Try again at <time")
    text(bea, "/inbox/")
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(PASSWORD)


def test_a_token_is_shown_once_and_kept_nowhere(bea: Client) -> None:
    answer = bea.post("/account/tokens/add/", {"scope": ["runs:read", "approvals:read"]})
    assert "no-store" in answer["Cache-Control"]
    found = re.search(r"aby_[0-9a-f]{16}_[0-9a-f]{64}", answer.content.decode())
    assert found is not None
    actor = tokens.authenticate(found[0])
    assert actor is not None
    assert actor.person == "bea"
    assert Token.objects.get().scopes == ["approvals:read", "runs:read"]
    shows(bea, "/account/", str(actor.token), hides=[found[0]])
    assert found[0].rpartition("_")[2] not in str(bea.session.items())


def test_a_token_without_a_known_scope_is_refused(bea: Client) -> None:
    for scopes, said in ((["root"], "unknown: root"), ([], "choose at least one")):
        has(text_of(bea.post("/account/tokens/add/", {"scope": scopes}), 422), said)
    assert not Token.objects.exists()


def test_people_list_and_revoke_only_their_own_tokens(bea: Client, cast: Cast) -> None:
    mine, plain = tokens.create(cast.bea, ["runs:read"])
    other, theirs = tokens.create(cast.ada, ALL_SCOPES)
    shows(bea, "/account/", mine.public_id, hides=[other.public_id])
    for name in (other.public_id, "0123"):
        assert bea.post(f"/account/tokens/{name}/revoke/").status_code == 404
    assert tokens.authenticate(theirs) is not None
    assert bea.post(f"/account/tokens/{mine.public_id}/revoke/").status_code == 302
    assert tokens.authenticate(plain) is None
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


def test_every_change_requires_a_post(bea: Client) -> None:
    for path in ("password/", "log-out-everywhere/", "tokens/0123/revoke/"):
        assert bea.get(f"/account/{path}").status_code == 405
