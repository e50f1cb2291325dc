"""A Slack user and an account are connected by proof of both, once."""

import re
import time
from datetime import timedelta

import pytest
from django.core import signing
from django.test import Client

from approvals import clock
from approvals.people import accounts, sign_in
from approvals.people.sign_in import LINK_SECONDS
from tests.support.pages import has, log_in, shows, text_of
from tests.support.second_factors import phone_of
from tests.support.seeds import PASSWORD, Cast
from tests.support.slack_server import OTHER_TEAM, TEAM, USERS, Slack
from tests.web.slack.conftest import connect

pytestmark = pytest.mark.django_db


def link(slack: Slack, who: str = "bea", team: str = TEAM) -> str:
    answer = slack.command("link", who, team=team).json()
    assert answer["response_type"] == "ephemeral"
    return str(re.findall(r"<http://[^/]+(/slack/link/[^/]+/)\|", answer["text"])[0])


def holder(who: str, team: str = TEAM) -> str | None:
    person = sign_in.find_holder(sign_in.make_slack_identity(team, USERS[who]))
    return None if person is None else person.username


def test_a_link_opened_by_its_user_connects_both(slack: Slack, bea: Client, cast: Cast) -> None:
    address = link(slack)
    page = bea.get(address)
    has(text_of(page), "<bdi>bea</bdi></b>, with the number", USERS["bea"])
    assert holder("bea") is None  # a GET changes nothing
    assert bea.post(address, {"password": "wrong"}).status_code == 422
    assert holder("bea") is None
    bea.post(address, {"password": PASSWORD})
    assert holder("bea") == "bea"
    assert sign_in.find_slack_user("bea") == USERS["bea"]
    has(slack.command("link").json()["text"], "connected to bea")
    shows(bea, "/account/", "slack:T0ACME", "/signoff link")


@pytest.mark.parametrize("way", ["code", "sign-in"])
def test_a_person_without_a_password_proves_who_they_are(
    way: str, slack: Slack, cast: Cast
) -> None:
    phone, address = phone_of("bea"), link(slack)
    accounts.remove_password("bea", actor=None)
    browser = log_in(accounts.read_person("bea"))
    _sign_in(browser, seconds_ago=301)
    assert browser.post(address).status_code == 422
    shows(browser, address, "Confirm that it is you", hides=("Your password",))
    if way == "sign-in":
        _sign_in(browser, seconds_ago=299)
    else:
        form = {"code": phone.code(), "next": address}
        assert browser.post("/account/second/", form)["Location"] == address
    shows(browser, address, USERS["bea"], hides=("Confirm that it is you", "Your password"))
    assert holder("bea") is None
    browser.post(address)
    assert holder("bea") == "bea"


def _sign_in(browser: Client, *, seconds_ago: int) -> None:
    """Have the session say that its person signed in at a provider."""
    session, at = browser.session, clock.read_time() - timedelta(seconds=seconds_ago)
    session["oidc"] = {"provider": "acme", "token": "", "at": at.isoformat()}
    session.save()


def test_the_owner_disconnects(slack: Slack, bea: Client, cast: Cast) -> None:
    connect("bea")
    bea.post("/account/sign-in/disconnect/")
    assert holder("bea") is None
    assert sign_in.find_slack_user("bea") is None


def test_a_link_works_once(slack: Slack, bea: Client, cast: Cast) -> None:
    address = link(slack)
    bea.post(address, {"password": PASSWORD})
    bea.post("/account/sign-in/disconnect/")
    has(text_of(bea.post(address, {"password": PASSWORD}, follow=True)), "This link is over")
    assert holder("bea") is None


def test_a_link_ends_after_ten_minutes(
    slack: Slack, bea: Client, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, now = link(slack), time.time()
    monkeypatch.setattr("django.core.signing.time.time", lambda: now + LINK_SECONDS + 2)
    has(text_of(bea.get(address, follow=True)), "This link is over")
    bea.post(address, {"password": PASSWORD})
    assert holder("bea") is None


@pytest.mark.parametrize("token", ["x", "a:b:c", ""])
def test_a_forged_link_connects_nobody(token: str, slack: Slack, bea: Client, cast: Cast) -> None:
    token = token or signing.dumps([TEAM, "U0BEA", "bea"])  # for another purpose
    bea.post(f"/slack/link/{token}/", {"password": PASSWORD})
    assert holder("bea") is None


def test_a_slack_user_belongs_to_one_account(slack: Slack, cast: Cast) -> None:
    address = link(slack)
    connect("bea")
    anne = log_in(cast.admin)
    has(
        text_of(anne.post(address, {"password": PASSWORD}, follow=True)),
        "belongs to another account",
    )
    assert holder("bea") == "bea"


def test_the_same_number_of_another_team_is_another_user(
    slack: Slack, bea: Client, cast: Cast
) -> None:
    bea.post(link(slack, team=OTHER_TEAM), {"password": PASSWORD})
    assert holder("bea") is None
    assert holder("bea", OTHER_TEAM) == "bea"


def test_other_texts_are_answered_with_help(slack: Slack, db: None) -> None:
    has(slack.command("bea@example.com").json()["text"], "/signoff link", hides=["http"])
