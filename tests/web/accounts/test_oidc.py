"""People sign in at an OpenID provider; a forged, stolen or changed answer lets no one in."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from approvals.models import Assignment
from approvals.people import accounts
from approvals.rights import assignments, principals
from config.env import environment
from config.env.environment import ROOT
from runtime.ports.access import Actor
from tests.docs.pages import blocks
from tests.support.openid_provider import HEADER, OpenIDProvider, at_provider, back_from
from tests.support.pages import has, log_in, reader_of, shows, text_of
from tests.support.seeds import PASSWORD, Cast

pytestmark = pytest.mark.django_db

START = "/login/oidc/acme/"
ZOE = "zoe@acme.example"


@pytest.fixture
def acme(running: OpenIDProvider) -> Iterator[OpenIDProvider]:
    with at_provider(running):
        yield running


def _to_provider(browser: Client, start: str = START) -> str:
    """Go to the provider, and return where it leads back to."""
    return back_from(browser.get(start)["Location"])


def _sign_in(browser: Client, start: str = START) -> Any:
    return browser.get(_to_provider(browser, start))


def test_the_guide_sets_it_up(acme: OpenIDProvider, settings: Settings) -> None:
    page = ROOT / "docs/how-to/sign-in-with-oidc.md"
    variables = dict(line.split("=", 1) for line in blocks(page)[0].text.splitlines())
    site = "https://signoff.example"
    known = environment.read({**variables, "PUBLIC_URL": site, "BEHIND_PROXY": "yes"}).oidc["acme"]
    local = replace(known, issuer=acme.issuer, client="signoff", secret="canary-openid-secret")
    settings.SIGNOFF_OIDC, settings.PUBLIC_URL = {"acme": local}, site
    there = Client().get(START)["Location"]
    back = parse_qs(urlsplit(there).query)["redirect_uri"][0]
    has(page.read_text(), f"`{back}`", f"`{site}/login/`")


def test_a_stranger_gets_an_account_without_any_right(acme: OpenIDProvider) -> None:
    browser = Client()
    shows(browser, "/login/?next=/account/", f"{START}?next=/account/", "Log in with Acme")
    answer = _sign_in(browser, f"{START}?next=/account/")
    assert answer["Location"] == "/account/"
    person = User.objects.get(username=ZOE)
    assert (person.email, person.first_name) == (ZOE, "Zoe Novak")
    assert not person.has_usable_password()
    principal = principals.find_principal(Actor(person=ZOE))
    assert principal is not None
    assert principal.groups == frozenset()
    assert {row.givers[0] for row in Assignment.objects.filter(person=person)} == {"oidc:acme"}
    shows(browser, "/account/", "You are in no group", acme.issuer)
    again = Client()
    _sign_in(again)
    assert reader_of(again) == ZOE
    assert User.objects.filter(email=ZOE).count() == 1


def test_what_the_provider_made_is_bound_to_it(acme: OpenIDProvider) -> None:
    _sign_in(Client())
    acme.claims = {"sub": "2", "email": "yan@acme.example", "email_verified": True}
    _sign_in(Client())
    for name in (ZOE, "yan@acme.example"):
        assert "oidc:acme" in assignments.list_hands(name)  # so they are no two independent admins


def test_a_login_makes_a_new_session_that_lasts_as_long_as_others(acme: OpenIDProvider) -> None:
    browser = Client()
    back = _to_provider(browser)
    before = browser.session.session_key
    browser.get(back)
    assert browser.session.session_key != before
    assert browser.session.get_expiry_age() == django_settings.SESSION_COOKIE_AGE


WRONG_TOKENS: dict[str, dict[str, dict[str, Any]]] = {
    "another audience": {"token": {"aud": "other"}},
    "several audiences": {"token": {"aud": ["signoff", "other"]}},
    "another issuer": {"token": {"iss": "https://evil.example"}},
    "an expired token": {"token": {"exp": 1}},
    "no expiry": {"token": {"exp": None}},
    "another nonce": {"token": {"nonce": "x"}},
    "no nonce": {"token": {"nonce": None}},
    "no subject": {"token": {"sub": ""}},
    "a swapped subject": {"userinfo": {"sub": "1"}},
    "a withdrawn key": {"signs": {"key": generate_private_key(65537, 2048)}},
    "no signature": {"signs": {"key": None, "alg": "none"}},
    "a signature with the secret": {
        "signs": {"key": "canary-openid-secret-of-32-bytes-x", "alg": "HS256"}
    },
}


@pytest.mark.parametrize("wrong", WRONG_TOKENS)
def test_a_token_that_is_wrong_lets_nobody_in(acme: OpenIDProvider, wrong: str) -> None:
    changes = WRONG_TOKENS[wrong]
    acme.token |= changes.get("token", {})
    acme.userinfo |= changes.get("userinfo", {})
    for name, value in changes.get("signs", {}).items():
        setattr(acme, name, value)
    browser = Client()
    has(text_of(_sign_in(browser), 403), "is not valid")
    assert reader_of(browser) is None
    assert not User.objects.filter(email=ZOE).exists()


def test_an_answer_works_once_and_in_its_own_browser(acme: OpenIDProvider) -> None:
    browser = Client()
    back = _to_provider(browser)
    has(text_of(Client().get(back), 403), "began in another browser")
    assert browser.get(back).status_code == 302
    code = parse_qs(urlsplit(back).query)["code"][0]
    browser.logout()
    has(text_of(browser.get(back), 403), "is over")
    other = _to_provider(browser)
    stolen = other.replace(parse_qs(urlsplit(other).query)["code"][0], code)
    has(text_of(browser.get(stolen), 403), "is not valid")
    assert reader_of(browser) is None


def test_a_code_of_another_browser_does_not_fit_the_challenge(acme: OpenIDProvider) -> None:
    victim, thief = Client(), Client()
    stolen = parse_qs(urlsplit(_to_provider(victim)).query)["code"][0]
    back = _to_provider(thief)
    own = parse_qs(urlsplit(back).query)["code"][0]
    assert thief.get(back.replace(own, stolen)).status_code == 403
    assert reader_of(thief) is None


@pytest.mark.parametrize(
    "address",
    ["zoe", "a b@acme.example", "\0@acme.example", "\ud800@acme.example", 7, "x" * 500 + ZOE, None],
)
def test_an_address_that_no_one_verified_or_gets_names_nobody(
    acme: OpenIDProvider, address: Any
) -> None:
    unverified = {"email": "ada@acme.example", "email_verified": "true"}
    acme.claims |= unverified if address is None else {"email": address}
    assert _sign_in(Client()).status_code == 302
    person = User.objects.get(first_name="Zoe Novak")
    assert (person.email, person.username[:5]) == ("", "acme-")


@pytest.mark.parametrize("verified", [ZOE, ZOE.upper()])
def test_an_account_with_the_address_is_not_taken(
    acme: OpenIDProvider, cast: Cast, verified: str
) -> None:
    accounts.save_profile("ada", full_name="", email=verified, actor="ada")
    browser = Client()
    has(text_of(_sign_in(browser), 403), "Log in with its password")
    assert reader_of(browser) is None
    assert not assignments.sign_ins(cast.ada)


def _connect(browser: Client, password: str = PASSWORD) -> Any:
    assert _sign_in(browser)["Location"] == "/account/sign-in/"
    shows(browser, "/account/sign-in/", "Zoe Novak", ZOE, "248289761001")
    return browser.post("/account/sign-in/", {"password": password})


def test_the_owner_connects_with_the_password(acme: OpenIDProvider, cast: Cast) -> None:
    ada = log_in(cast.ada)
    has(text_of(_connect(ada, "wrong"), 422), "is not your password")
    assert not assignments.sign_ins(cast.ada)
    assert _connect(ada)["Location"] == "/account/"
    browser = Client()
    _sign_in(browser)
    assert reader_of(browser) == "ada"
    bea = log_in(cast.bea)
    shows(bea, _connect(bea)["Location"], "belongs to another account")
    assert ada.post("/account/sign-in/disconnect/").status_code == 302
    assert reader_of(ada) == "ada"
    assert reader_of(browser) is None
    _sign_in(browser)
    assert reader_of(browser) == ZOE


def test_only_a_signed_row_lets_in(acme: OpenIDProvider, cast: Cast) -> None:
    _connect(log_in(cast.ada))
    row = assignments.sign_ins(cast.ada)[0]
    row.pk, row.person, row.username = None, cast.admin, "admin"
    row.save(force_insert=True)
    browser = Client()
    _sign_in(browser)
    assert reader_of(browser) == "ada"


def test_a_disabled_person_is_out_and_starts_anew(acme: OpenIDProvider, cast: Cast) -> None:
    browser = Client()
    _sign_in(browser)
    back = _to_provider(Client())
    accounts.disable(ZOE, actor="admin")
    assert reader_of(browser) is None
    assert browser.get(back).status_code == 403
    _connect(log_in(cast.ada))
    accounts.disable("ada", actor="admin")
    has(text_of(_sign_in(Client()), 403), "An account with your address exists")
    accounts.enable("ada", actor="admin")
    assert not assignments.sign_ins(cast.ada)


def test_who_knew_a_password_keeps_no_way_in(acme: OpenIDProvider, cast: Cast) -> None:
    accounts.set_password("ada", "a giver knows this", actor="admin")
    _connect(log_in(User.objects.get(username="ada")), "a giver knows this")
    accounts.set_password("ada", "only ada knows this", actor="ada")
    row = assignments.read_latest([cast.ada])[cast.ada.pk, assignments.CREDENTIAL]
    accounts.confirm("ada", assignments.CREDENTIAL, seq=row.seq, actor=None)
    assert not assignments.sign_ins(cast.ada)


def test_a_log_out_ends_the_session_at_the_provider_too(acme: OpenIDProvider) -> None:
    browser = Client()
    _sign_in(browser)
    page = text_of(browser.post("/logout/"))
    has(page, "Log out at Acme too", "post_logout_redirect_uri=http%3A%2F%2Ftestserver%2Flogin%2F")
    assert reader_of(browser) is None
    acme.config["end_session_endpoint"] = "javascript:alert(1)"
    cache.clear()
    _sign_in(browser)
    assert browser.post("/logout/")["Location"] == "/login/"


@pytest.mark.parametrize(
    ("part", "pause", "seconds"),
    [(b" ", 0.05, 0.5), (HEADER, 0.05, 0.5), (b" " * 65_536, 0.0, 60)],
)
def test_a_provider_whose_answer_does_not_end_is_left(
    acme: OpenIDProvider,
    monkeypatch: pytest.MonkeyPatch,
    part: bytes,
    pause: float,
    seconds: float,
) -> None:
    monkeypatch.setattr("approvals.people.oidc.ANSWER_SECONDS", seconds)
    acme.endless = (part, pause)
    began = time.monotonic()
    has(text_of(Client().get(START), 403), "cannot be reached")
    assert time.monotonic() - began < 9
    assert acme.parts < 1_000
    has(text_of(Client().get(START), 403), "cannot be reached")
    assert len(acme.asked) == 1, "who comes next does not wait for it"


@pytest.mark.parametrize(
    "config",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://metadata.example/token"},
        {"jwks_uri": None},
    ],
)
def test_a_provider_that_says_it_is_another_is_not_used(
    acme: OpenIDProvider, config: dict[str, Any]
) -> None:
    acme.config |= config
    has(text_of(Client().get(START), 403), "cannot be reached")


def test_strangers_cannot_make_it_ask_the_provider_each_time(acme: OpenIDProvider) -> None:
    for _ in range(3):
        assert Client().get(START).status_code == 302
    assert acme.asked == ["/.well-known/openid-configuration"]


@pytest.mark.parametrize("page", ["//evil.example/", "https://evil.example/", "/\\evil.example"])
def test_it_leads_to_no_other_site(acme: OpenIDProvider, page: str) -> None:
    assert _sign_in(Client(), f"{START}?next={page}")["Location"] == "/"


def test_texts_of_a_provider_are_escaped(acme: OpenIDProvider, cast: Cast) -> None:
    acme.claims |= {"name": "<script>1</script>", "sub": "<b>"}
    ada = log_in(cast.ada)
    _sign_in(ada)
    shows(ada, "/account/sign-in/", "&lt;script&gt;", hides=["<script>1", "<b>&lt;b"])


def test_an_unknown_provider_is_not_found(acme: OpenIDProvider, settings: Settings) -> None:
    assert Client().get("/login/oidc/other/").status_code == 404
    assert Client().post(START).status_code == 405
    assert acme.asked == []
