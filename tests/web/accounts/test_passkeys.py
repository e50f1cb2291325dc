"""Passkeys: added with the password, and an answer counts once, for its person, from this site."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from django.contrib.auth.models import User
from django.test import Client
from fido2.cose import ES256
from fido2.utils import sha256, websafe_decode, websafe_encode
from fido2.webauthn import (
    Aaguid,
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorData,
    CollectedClientData,
)
from pytest_django import Settings

from approvals.models import SecondFactor
from approvals.people import second_factors
from tests.support.pages import has, log_in, shows
from tests.support.second_factors import give_password, page_of, phone_of
from tests.support.seeds import PASSWORD, Cast

pytestmark = pytest.mark.django_db
FLAG = AuthenticatorData.FLAG
SITE = "http://testserver"
ADD = "/account/second/passkey/"


class Passkey:
    """One credential. `counter` is that of its next signature."""

    def __init__(self, credential_id: bytes = b"") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id, self.counter = credential_id or os.urandom(16), 1

    def create(self, options: dict[str, Any], site: str = SITE) -> str:
        public: Any = ES256.from_cryptography_key(self.key.public_key())  # type: ignore[no-untyped-call]
        credential = AttestedCredentialData.create(Aaguid(bytes(16)), self.id, public)
        proof = AuthenticatorData.create(
            sha256(b"testserver"), FLAG.UP | FLAG.UV | FLAG.AT, 0, bytes(credential)
        )
        client = self._client("create", options, site)
        document = AttestationObject.create("none", proof, {})
        return self._answer(clientDataJSON=client, attestationObject=bytes(document))

    def sign(
        self,
        options: dict[str, Any],
        site: str = SITE,
        flags: FLAG = FLAG.UP | FLAG.UV,
        rp: str = "testserver",
    ) -> str:
        client = self._client("get", options, site)
        proof = AuthenticatorData.create(sha256(rp.encode()), flags, self.counter)
        self.counter += 1
        signature = self.key.sign(proof + sha256(client), ec.ECDSA(SHA256()))
        return self._answer(clientDataJSON=client, authenticatorData=proof, signature=signature)

    def _client(self, kind: str, options: dict[str, Any], site: str) -> bytes:
        challenge = websafe_decode(options["publicKey"]["challenge"])
        return bytes(CollectedClientData.create(f"webauthn.{kind}", challenge, site))

    def _answer(self, **response: bytes) -> str:
        document = {
            "id": websafe_encode(self.id),
            "rawId": websafe_encode(self.id),
            "type": "public-key",
            "response": {name: websafe_encode(value) for name, value in response.items()},
        }
        return json.dumps(document)


@pytest.fixture(autouse=True)
def _site(settings: Settings) -> None:
    settings.PUBLIC_URL = SITE


def _options(browser: Client, act: str = "check") -> dict[str, Any]:
    answer = browser.post("/login/passkey/", {"act": act})
    assert answer.status_code == 200
    options: dict[str, Any] = answer.json()
    return options


def _added(person: User, key: Passkey, **form: str) -> Any:
    browser = log_in(person)
    answer = key.create(_options(browser, "add"))
    form = {"name": "Key", "password": PASSWORD, "passkey": answer, **form}
    return browser.post(ADD, form, follow=True)


def _signs_in(browser: Client, answer: str) -> bool:
    browser.post("/login/second/", {"passkey": answer, "code": ""})
    return "_auth_user_id" in browser.session


@pytest.fixture
def passkey(cast: Cast) -> Passkey:
    """Bea's."""
    passkey = Passkey()
    has(page_of(_added(cast.bea, passkey)), "Recovery codes")
    return passkey


def test_a_passkey_finishes_the_login(passkey: Passkey, cast: Cast) -> None:
    browser = Client()
    give_password(browser, "bea")
    options = _options(browser)["publicKey"]
    assert options["userVerification"] == "required"
    assert len(options["allowCredentials"]) == 1
    assert _signs_in(browser, passkey.sign({"publicKey": options}))
    assert browser.session["authenticated"]["how"] == "password+passkey"
    shows(browser, "/account/", "Key", "passkey", "last used")


def test_a_stranger_gets_no_options(cast: Cast) -> None:
    assert Client().post("/login/passkey/", {"act": "add"})["Location"] == "/login/"


def test_a_passkey_is_added_with_the_password_and_our_challenge(cast: Cast) -> None:
    _added(cast.bea, Passkey(), password="wrong")
    _added(cast.bea, Passkey(), passkey="{}")
    _added(cast.bea, Passkey(), passkey="no JSON")
    _added(cast.bea, Passkey(), passkey="")
    _added(cast.bea, Passkey(), name="")
    here, there = log_in(cast.bea), log_in(cast.bea)
    _options(here, "add")
    other = Passkey().create(_options(there, "add"))
    here.post(ADD, {"name": "Key", "password": PASSWORD, "passkey": other})
    elsewhere = Passkey().create(_options(here, "add"), "https://evil.example")
    here.post(ADD, {"name": "Key", "password": PASSWORD, "passkey": elsewhere})
    assert second_factors.list_factors(cast.bea) == []


ATTACKS: dict[str, Callable[[Passkey, dict[str, Any]], str]] = {
    "another site": lambda key, options: key.sign(options, "https://evil.example"),
    "another port": lambda key, options: key.sign(options, "http://testserver:8080"),
    "another relying party": lambda key, options: key.sign(options, rp="evil.example"),
    "no verified person": lambda key, options: key.sign(options, flags=FLAG.UP),
    "no present person": lambda key, options: key.sign(options, flags=FLAG.UV),
    "another key": lambda key, options: Passkey(key.id).sign(options),
    "an unknown credential": lambda key, options: Passkey().sign(options),
    "no answer": lambda key, options: "{}",
    "no JSON": lambda key, options: "x",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forged_answer_lets_no_one_in(passkey: Passkey, attack: str) -> None:
    browser = Client()
    give_password(browser, "bea")
    assert not _signs_in(browser, ATTACKS[attack](passkey, _options(browser)))


def test_an_answer_is_for_one_challenge_of_one_browser(passkey: Passkey) -> None:
    first, second = Client(), Client()
    for browser in (first, second):
        give_password(browser, "bea")
    answer = passkey.sign(_options(first))
    assert not _signs_in(second, answer), "no challenge"
    _options(second)
    assert not _signs_in(second, answer), "another challenge"
    assert _signs_in(first, answer)
    first.session.flush()
    give_password(first, "bea")
    assert not _signs_in(first, answer), "a used challenge"


def test_a_copied_passkey_is_noticed_by_its_counter(passkey: Passkey) -> None:
    browser = Client()
    give_password(browser, "bea")
    passkey.counter = 7
    assert _signs_in(browser, passkey.sign(_options(browser)))
    copied = Client()
    give_password(copied, "bea")
    passkey.counter = 7
    assert not _signs_in(copied, passkey.sign(_options(copied)))


def test_a_passkey_that_counts_nothing_works_again(passkey: Passkey) -> None:
    for _ in range(2):
        browser = Client()
        give_password(browser, "bea")
        passkey.counter = 0
        assert _signs_in(browser, passkey.sign(_options(browser)))


def test_a_removed_passkey_and_a_forged_row_let_no_one_in(passkey: Passkey, cast: Cast) -> None:
    phone_of("bea")
    row = SecondFactor.objects.get(kind="passkey")
    forged, theirs = Passkey(), Passkey()
    _added(cast.ada, theirs)
    copied = SecondFactor.objects.get(kind="passkey", person=cast.ada)
    fields = {"name": "Key", "created_at": copied.created_at, "key_id": copied.key_id}
    SecondFactor.objects.create(
        person=cast.bea, kind="passkey", secret=copied.secret, signature=copied.signature, **fields
    )
    second_factors.remove("bea", row.id, keep="")
    for key in (passkey, theirs, forged):
        browser = Client()
        give_password(browser, "bea")
        assert not _signs_in(browser, key.sign(_options(browser)))
