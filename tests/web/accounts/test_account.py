"""Login, forms that are sent without a session, and the account page: password, tokens, sessions."""

import re
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from approvals.accounts import tokens
from approvals.models import LoginFailures, Token
from approvals.permissions.scopes import ALL_SCOPES, Scope
from tests.support.cast import PASSWORD, Cast
from tests.support.office import Office
from tests.support.pages import has, log_in, shows, text, text_of
from tests.web.matrix import ROWS

NEW = "another horse battery"
CHANGE = {"current": PASSWORD, "password": NEW, "again": NEW}


def test_logging_in_never_leads_elsewhere(cast: Cast) -> None:
    form = {"username": "bea", "password": PASSWORD}
    for asked_for, led_to in (("/runs/", "/runs/"), ("https://elsewhere.example/", "/")):
        assert Client().post("/login/", {**form, "next": asked_for})["Location"] == led_to


def test_the_login_leads_to_the_page_of_the_form(office: Office, suspended: UUID) -> None:
    request = office.request(suspended)
    for form, page in {
        f"/a/{request.id}/settle/happened/": f"/a/{request.id}/",
        f"/runs/{suspended}/pause/": f"/runs/{suspended}/",
        f"/runs/{suspended}/fork/1/": f"/runs/{suspended}/fork/1/",
        "/people/cyril/groups/": "/people/",
    }.items():
        answer = Client().post(form, {"reason": "because"})
        assert answer["Location"] == f"/login/?next={page}&unsent=1", form
    assert Client().get("/runs/?q=x")["Location"] == "/login/?next=/runs/%3Fq%3Dx"


def test_each_login_after_a_form_says_that_it_was_not_sent(
    places: dict[str, Any], subtests: pytest.Subtests
) -> None:
    form = {"username": "admin", "password": PASSWORD}
    for row in ROWS:
        if row.method == "POST" and row.cells["anon"] == "in" and not row.is_api:
            with subtests.test(row.path):
                client = Client()
                to_login = client.post(row.path.format(**places))["Location"]
                page = client.get(client.post(to_login, form)["Location"])
                has(text_of(page), "You were logged out before this was sent")


def test_an_address_for_forms_has_a_page_of_ours(
    bea: Client, office: Office, suspended: UUID
) -> None:
    page = f"/a/{office.request(suspended).id}/"
    answer = bea.get(f"{page}approve/")
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    has(answer.content.decode(), "Nothing was decided or changed", f'href="{page}"')


def test_a_new_password_ends_other_sessions_and_keeps_this_one(bea: Client, cast: Cast) -> None:
    other, before = log_in(cast.bea), bea.session.session_key
    assert bea.post("/account/password/", CHANGE)["Location"] == "/account/"
    shows(bea, "/account/", "Your password is changed")
    assert bea.session.session_key != before
    assert other.get("/account/")["Location"].startswith("/login/")
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(NEW)


def test_a_refused_password_change_says_why_and_guesses_are_throttled(
    bea: Client, cast: Cast
) -> None:
    for change, said in (
        ({"again": "other"}, "The new password was not typed the same way twice."),
        ({"password": "bea", "again": "bea"}, "The new password is not good enough"),
    ):
        answer = bea.post("/account/password/", {**CHANGE, **change})
        has(text_of(answer, 422), said, hides=[PASSWORD])
    assert not LoginFailures.objects.exists()  # the right password is not counted
    guesses = [{**CHANGE, "current": f"guess {n}"} for n in range(8)]
    answers = [bea.post("/account/password/", guess) for guess in guesses]
    assert [answer.status_code for answer in answers] == [422] * 5 + [429] * 3
    has(text_of(answers[0], 422), "That is not your password.")
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
    scopes = [f'name="scope" value="{scope}"' for scope in Scope]
    hides = [found[0], other.public_id, "start runs of agents"]
    shows(bea, "/account/", str(actor.token), "decide on the calls", *scopes, hides=hides)
    assert found[0].rpartition("_")[2] not in str(bea.session.items())
    assert bea.post(f"/account/tokens/{actor.token}/revoke/").status_code == 302
    assert tokens.authenticate(found[0]) is None
    shows(bea, "/account/", "revoked just now")


def test_logging_out_everywhere_ends_every_session_of_ones_own(
    bea: Client, ada: Client, cast: Cast
) -> None:
    other = log_in(cast.bea)
    assert bea.post("/account/log-out-everywhere/")["Location"] == "/login/"
    for client in (bea, other):
        assert client.get("/account/")["Location"].startswith("/login/")
    text(ada, "/account/")
