"""A login with a second factor, its attacks, and how factors are added and removed."""

import base64
import re
from datetime import timedelta
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.db import InternalError, ProgrammingError, connection, transaction
from django.test import Client

from approvals import clock
from approvals.models import SecondFactor
from approvals.people import accounts, second_factors
from runtime.keyring import sealing
from tests.support.pages import has, log_in, reader_of, shows
from tests.support.second_factors import Phone, give_code, give_password, page_of, phone_of
from tests.support.seeds import PASSWORD, Cast

pytestmark = pytest.mark.django_db


@pytest.fixture
def audit_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> pytest.LogCaptureFixture:
    """The log of what people change. The transaction of a test is never committed, so its acts follow at once."""
    monkeypatch.setattr(transaction, "on_commit", lambda act, **_: act())
    caplog.set_level("INFO", "approvals.signed.audit")
    return caplog


def test_the_password_alone_does_not_log_in(cast: Cast) -> None:
    phone, browser = phone_of("bea"), Client()
    answer = give_password(browser, "bea", "/inbox/")
    assert (answer.status_code, answer["Location"], reader_of(browser)) == (
        302,
        "/login/second/",
        None,
    )
    assert browser.get("/inbox/")["Location"].startswith("/login/")
    shows(browser, "/login/second/", "bea", "Code of your authenticator app")
    answer = give_code(browser, phone.code())
    assert (answer["Location"], reader_of(browser)) == ("/inbox/", "bea")
    assert browser.session["authenticated"]["how"] == "password+totp"
    assert "second_factor" not in browser.session


def test_a_person_without_a_factor_logs_in_as_before(cast: Cast) -> None:
    browser = Client()
    phone_of("ada")
    give_password(browser, "bea")
    assert (reader_of(browser), browser.session["authenticated"]) == ("bea", {"how": "password"})


def test_a_code_works_once_and_none_before_it(cast: Cast) -> None:
    phone, first, second = phone_of("bea"), Client(), Client()
    code, before = phone.code(), phone.code(-1)
    for browser in (first, second):
        give_password(browser, "bea")
    assert give_code(first, code).status_code == 302
    for used in (code, before):
        has(page_of(give_code(second, used)), "wrong, or was used before")
    assert reader_of(second) is None


@pytest.mark.parametrize("later", [-2, 2, 20])
def test_a_code_of_another_time_is_refused(cast: Cast, later: int) -> None:
    phone, browser = phone_of("bea"), Client()
    give_password(browser, "bea")
    assert give_code(browser, phone.code(later)).status_code == 422


def test_the_code_of_another_person_is_refused(cast: Cast) -> None:
    phone_of("bea")
    other, browser = phone_of("ada"), Client()
    give_password(browser, "bea")
    for code in (other.code(), other.recovery[0]):
        assert give_code(browser, code).status_code == 422
    assert reader_of(browser) is None


def test_guesses_are_counted_for_the_person_from_all_addresses(cast: Cast) -> None:
    phone = phone_of("bea")
    statuses = []
    for guess in range(8):
        browser = Client(REMOTE_ADDR=f"192.0.2.{guess}")
        give_password(browser, "bea")
        statuses.append(give_code(browser, "000000").status_code)
    assert statuses == [422] * 5 + [429] * 3
    give_password(browser, "bea")
    has(page_of(give_code(browser, phone.code())), "Too many failed attempts")
    assert reader_of(browser) is None
    other, theirs = phone_of("ada"), Client()
    give_password(theirs, "ada")
    assert give_code(theirs, other.code()).status_code == 302


def test_a_recovery_code_works_once_even_if_no_key_opens_the_app(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = phone_of("bea")
    monkeypatch.setattr(sealing, "unseal", Mock(side_effect=sealing.NotOurs))
    assert len(set(phone.recovery)) == second_factors.RECOVERY_CODES
    for expected in ("bea", None):
        browser = Client()
        give_password(browser, "bea")
        give_code(browser, f" {phone.recovery[3].upper()} ")
        assert reader_of(browser) == expected
    assert second_factors.count_codes(cast.bea) == second_factors.RECOVERY_CODES - 1


def test_the_second_step_ends_with_its_time_the_password_and_the_account(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone, browser, disabled, late = phone_of("bea"), Client(), Client(), Client()
    give_password(browser, "bea")
    accounts.set_password("bea", "an0ther long passphrase", actor=None)
    assert give_code(browser, phone.code())["Location"] == "/login/"
    late.post("/login/", {"username": "bea", "password": "an0ther long passphrase"})
    now = clock.read_time
    monkeypatch.setattr(clock, "read_time", lambda: now() + timedelta(minutes=10, seconds=1))
    assert give_code(late, phone.code())["Location"] == "/login/"
    other = phone_of("ada")
    give_password(disabled, "ada")
    accounts.disable("ada", actor="admin")
    assert give_code(disabled, other.code())["Location"] == "/login/"
    assert [reader_of(client) for client in (browser, late, disabled)] == [None] * 3


def _add(browser: Client, **form: str) -> tuple[Phone, Any]:
    page = shows(browser, "/account/second/app/", "<svg")
    phone = Phone(key=re.findall(r'class="secret">([A-Z2-7]{32})<', page)[0])
    form = {"name": "My phone", "code": phone.code(), "password": PASSWORD, **form}
    return phone, browser.post("/account/second/app/", form)


def test_a_person_adds_an_app_with_the_password(
    cast: Cast, audit_log: pytest.LogCaptureFixture
) -> None:
    browser, other = Client(), log_in(cast.bea)
    give_password(browser, "bea")
    for wrong in ({"password": "wrong"}, {"code": "000000"}, {"name": " "}):
        _, answer = _add(browser, **wrong)
        assert answer.status_code == 422
    assert second_factors.list_factors(cast.bea) == []
    phone, answer = _add(browser)
    codes = re.findall(r"[0-9a-f]{4}(?:-[0-9a-f]{4}){3}", has(page_of(answer), "shown this once"))
    assert len(codes) == second_factors.RECOVERY_CODES
    assert (reader_of(other), reader_of(browser)) == (None, "bea")
    shows(browser, "/account/", "My phone", "10 recovery codes left")
    assert "bea added the second factor My phone, an authenticator app" in audit_log.messages
    row = SecondFactor.objects.get(kind="app")
    assert phone.key not in str(row.secret), "the key is sealed"
    assert not any(
        code.replace("-", "") in str(r.secret) for r in SecondFactor.objects.all() for code in codes
    )


def test_a_person_removes_a_factor_with_the_password(
    cast: Cast, audit_log: pytest.LogCaptureFixture
) -> None:
    phone_of("bea")
    browser, other = log_in(cast.bea), log_in(cast.bea)
    [row] = second_factors.list_factors(cast.bea)
    path = f"/account/second/{row.id}/remove/"
    browser.post(path, {"password": "wrong"})
    assert second_factors.list_factors(cast.bea)
    assert log_in(cast.ada).post(path, {"password": PASSWORD}).status_code == 404
    browser.post(path, {"password": PASSWORD})
    assert (second_factors.list_factors(cast.bea), second_factors.count_codes(cast.bea)) == ([], 0)
    assert (reader_of(browser), reader_of(other)) == ("bea", None)
    assert "bea removed the second factor Phone" in audit_log.messages


def test_new_recovery_codes_end_the_present_ones(cast: Cast) -> None:
    phone, browser = phone_of("bea"), log_in(cast.bea)
    has(page_of(browser.post("/account/second/codes/", {"password": PASSWORD})), "shown this once")
    late = Client()
    give_password(late, "bea")
    assert give_code(late, phone.recovery[0]).status_code == 422


def test_an_admin_removes_the_factors_of_a_person_who_lost_them(
    cast: Cast, audit_log: pytest.LogCaptureFixture
) -> None:
    phone_of("bea")
    theirs = log_in(cast.bea)
    log_in(cast.admin).post("/people/bea/second/reset/")
    assert second_factors.list_factors(cast.bea) == []
    assert reader_of(theirs) is None
    assert "admin removed the second factors of bea" in audit_log.messages
    browser = Client()
    give_password(browser, "bea")
    assert reader_of(browser) == "bea"


def test_a_row_that_another_program_wrote_opens_nothing_and_is_still_asked_for(cast: Cast) -> None:
    """As a worker could write it: it has the key that seals secrets, but not the one that signs."""
    phone_of("bea")
    other, row_id = phone_of("ada"), uuid4()
    signed = SecondFactor.objects.get(person=cast.ada, kind="app")
    SecondFactor.objects.create(
        id=row_id,
        person=cast.bea,
        kind="app",
        name="Forged",
        secret=second_factors._seal(base64.b32decode(other.key), str(row_id)),
        created_at=signed.created_at,
        signature=signed.signature,
        key_id=signed.key_id,
    )
    browser = Client()
    give_password(browser, "bea")
    assert give_code(browser, other.code()).status_code == 422
    assert reader_of(browser) is None


@pytest.mark.parametrize(
    "change", ["counter = 0", "ended_at = NULL", "secret = '1'", "person_id = person_id + 1"]
)
def test_postgres_refuses_what_would_open_a_factor_again(cast: Cast, change: str) -> None:
    phone_of("bea")
    [row] = second_factors.list_factors(cast.bea)
    second_factors.remove("bea", row.id, keep="")
    with (
        pytest.raises((InternalError, ProgrammingError), match="end once"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE approvals_secondfactor SET {change} WHERE id = %s", [row.id])


def test_the_number_of_factors_and_their_names_are_limited(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_factors, "MAX_FACTORS", 1)
    phone_of("bea")
    browser = log_in(cast.bea)
    for name, problem in (("Another", "one too many"), ("x" * 61, "1 to 60 visible characters")):
        _, answer = _add(browser, name=name)
        has(page_of(answer), problem)


def test_pages_show_no_key_of_a_factor(cast: Cast, settings: LazySettings) -> None:
    phone, browser = phone_of("bea"), log_in(cast.bea)
    shows(browser, "/account/", "Phone", hides=(phone.key, *phone.recovery))
