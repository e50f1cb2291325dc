"""A person confirms at an OpenID provider that it is them, and only a fresh log-in of theirs there counts."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from approvals.people import accounts, second_factors, sign_in
from approvals.rules.identity_providers import Identity
from approvals.signed import statements
from tests.approvals.policies.office import asked
from tests.support.openid_provider import OpenIDProvider, at_provider, back_from
from tests.support.pages import has, log_in, send, shows
from tests.support.second_factors import Phone, give_code, page_of, phone_of
from tests.support.seeds import Cast

pytestmark = pytest.mark.django_db

SIGN_IN, STEP_UP = "/login/oidc/acme/", "/login/oidc/acme/?step_up=1&next=/inbox/"
RULE = "rules: [{name: Fresh, step_up: required}]"
SUBJECT = "248289761001"


@pytest.fixture
def acme(running: OpenIDProvider, cast: Cast) -> Iterator[OpenIDProvider]:
    """The provider, at which Bea has connected her account."""
    with at_provider(running):
        sign_in.connect("bea", _identity())
        yield running


def _identity() -> Identity:
    provider = django_settings.SIGNOFF_OIDC["acme"]
    return Identity(provider=provider, subject=SUBJECT, address="", full_name="")


def _set(settings: Settings, **terms: Any) -> None:
    known = django_settings.SIGNOFF_OIDC["acme"]
    settings.SIGNOFF_OIDC = {"acme": replace(known, **terms)}


def _go(browser: Client, start: str) -> tuple[dict[str, list[str]], Any]:
    """Go to the provider and back. Return its parameters, and the last answer."""
    there = browser.get(start)["Location"]
    return parse_qs(urlsplit(there).query), browser.get(back_from(there))


def _now(seconds_ago: int = 0) -> int:
    return int(time.time()) - seconds_ago


def test_a_fresh_log_in_at_the_provider_lets_a_person_decide(
    acme: OpenIDProvider, cast: Cast
) -> None:
    approval, browser = asked(RULE), log_in(cast.bea)
    shows(browser, approval, "Confirm at Acme")
    acme.token = {"auth_time": _now(), "acr": "phr"}
    sent, answer = _go(browser, STEP_UP)
    assert sent["max_age"] == ["300"]
    assert answer["Location"] == "/inbox/"
    send(browser, approval, "approve")
    approval.refresh_from_db()
    proof = statements.read(approval).authenticated
    assert proof is not None
    assert (approval.status, proof["how"], proof["acr"]) == ("approved", "oidc:acme", "phr")


def test_a_login_asks_for_no_fresh_one(acme: OpenIDProvider) -> None:
    sent, _ = _go(Client(), SIGN_IN)
    assert not sent.keys() & {"max_age", "acr_values"}


REFUSED: dict[str, dict[str, Any]] = {
    "it does not say when": {},
    "too long ago": {"auth_time": -301},
    "in the future": {"auth_time": 120},
    "no number": {"auth_time": "now"},
    "a truth": {"auth_time": True},
    "beyond all times": {"auth_time": 10**20},
    "another person": {"auth_time": 0, "sub": "another"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_another_log_in_confirms_nothing(acme: OpenIDProvider, cast: Cast, case: str) -> None:
    approval, browser, token = asked(RULE), log_in(cast.bea), dict(REFUSED[case])
    if type(token.get("auth_time")) is int and abs(token["auth_time"]) < 10**4:
        token["auth_time"] += _now()
    acme.token = token
    acme.claims["sub"] = token.get("sub", SUBJECT)
    _, answer = _go(browser, STEP_UP)
    assert answer.status_code == 403
    assert send(browser, approval, "approve").status_code == 403
    approval.refresh_from_db()
    assert approval.status == "pending"


def test_only_the_signed_token_says_when(acme: OpenIDProvider, cast: Cast) -> None:
    acme.userinfo = {"auth_time": _now(), "acr": "phr"}
    _, answer = _go(log_in(cast.bea), STEP_UP)
    assert answer.status_code == 403


@pytest.mark.parametrize(("acr", "status"), [("phr", 302), ("phrh", 302), ("0", 403), (None, 403)])
def test_the_asked_acr_is_required(
    acme: OpenIDProvider, cast: Cast, settings: Settings, acr: str | None, status: int
) -> None:
    _set(settings, acr="phr phrh")
    acme.token = {"auth_time": _now(), "acr": acr}
    sent, answer = _go(log_in(cast.bea), STEP_UP)
    assert (sent["acr_values"], answer.status_code) == (["phr phrh"], status)


def test_a_sign_in_is_followed_by_our_second_factor_if_that_is_set(
    acme: OpenIDProvider, settings: Settings
) -> None:
    phone, browser = phone_of("bea"), Client()
    _go(browser, SIGN_IN)
    assert "_auth_user_id" in browser.session
    _set(settings, asks_second=True)
    second = Client()
    _, answer = _go(second, SIGN_IN)
    assert (answer["Location"], "_auth_user_id" in second.session) == ("/login/second/", False)
    assert give_code(second, phone.code()).status_code == 302
    assert second.session["authenticated"]["how"] == "oidc:acme+totp"
    assert second.session["oidc"]["provider"] == "acme"


def test_a_person_without_a_password_adds_an_app_just_after_a_sign_in(acme: OpenIDProvider) -> None:
    accounts.remove_password("bea", actor=None)
    sign_in.connect("bea", _identity())
    browser = Client()
    _go(browser, SIGN_IN)
    page = shows(browser, "/account/second/app/", "Sign in at your provider first")
    assert 'name="password"' not in page
    for seconds, added in ((301, 0), (0, 1)):
        session = browser.session
        at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(_now(seconds)))
        session["oidc"] = {**session["oidc"], "at": at}
        session.save()
        new = second_factors.generate_app("bea", browser.session["new_app"])
        code = Phone(key=new.key).code()
        answer = browser.post("/account/second/app/", {"name": "App", "code": code})
        assert len(second_factors.list_factors(User.objects.get(username="bea"))) == added
    has(page_of(answer), "Recovery codes")
