"""The login throttle: its limits, its duration, and its answers."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.http import HttpRequest
from django.test import Client
from django.utils import timezone

from approvals.models import LoginFailures
from approvals.people import login
from runtime.core.values.limits import MAX_PERSON
from runtime.store import pool
from tests.support.api_client import Caller
from tests.support.pages import has, text, text_of
from tests.support.seeds import PASSWORD, Cast


@pytest.fixture
def looked_at(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords hashed since the users were created."""
    hashed: list[str] = []
    real = MD5PasswordHasher.encode

    def encode(self: MD5PasswordHasher, password: str, salt: str) -> str:
        hashed.append(password)
        return real(self, password, salt)

    monkeypatch.setattr(MD5PasswordHasher, "encode", encode)
    return hashed


def _try(name: str, password: str, address: str = "192.0.2.1", **headers: str) -> Any:
    client = Client(REMOTE_ADDR=address, headers=headers)
    return client.post("/login/", {"username": name, "password": password})


def _time_passes(seconds: float) -> None:
    LoginFailures.objects.update(at=F("at") - timedelta(seconds=seconds))


@pytest.mark.parametrize(("name", "checked"), [("bea", 5), ("name{}", 10)])
def test_five_of_50_guesses_are_checked(looked_at: list[str], name: str, checked: int) -> None:
    codes = [_try(name.format(n), f"guess {n}").status_code for n in range(50)]
    assert codes == [200] * checked + [429] * (50 - checked)
    assert len(looked_at) == checked


def test_guesses_at_names_longer_than_any_are_counted(looked_at: list[str]) -> None:
    """Postgres does not index such a text: random, so it does not get shorter by compression."""
    draw = random.Random(1)
    codes = [
        _try("".join(chr(draw.randrange(0x4E00, 0x9FFF)) for _ in range(9_000)), "x").status_code
        for _ in range(12)
    ]
    assert codes == [200] * 10 + [429] * 2
    assert User._meta.get_field("username").max_length == MAX_PERSON


@pytest.mark.django_db(transaction=True)
def test_a_login_does_not_wait_for_the_cleaning_of_another_address(cast: Cast) -> None:
    old = timezone.now() - timedelta(hours=1)
    for place in ("192.0.2.8", "192.0.2.9"):
        LoginFailures.objects.create(address=place, username="x", failures=1, at=old)
    with (
        pool.open_own() as own,
        own.transaction(force_rollback=True),
        connection.cursor() as cursor,
    ):
        own.execute("SELECT FROM approvals_loginfailures WHERE address = '192.0.2.9' FOR UPDATE")
        cursor.execute("SET lock_timeout = '500ms'")
        code = _try("bea", "wrong").status_code
        cursor.execute("RESET lock_timeout")
    assert code == 200
    assert {row.address for row in LoginFailures.objects.all()} == {"192.0.2.1", "192.0.2.9"}


@pytest.mark.django_db(transaction=True)
def test_concurrent_guesses_count_like_sequential_ones(looked_at: list[str]) -> None:
    def guess(number: int) -> int:
        try:
            return int(_try("bea", f"guess {number}").status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(guess, range(40)))
    assert codes == [200] * 5 + [429] * 35
    assert len(looked_at) == 5


def test_the_right_password_waits_like_any_other(bea: Client, bea_api: Caller, cast: Cast) -> None:
    """Trying does not make it longer; other people, sessions and tokens are not affected."""
    for _ in range(9):
        _try("bea", "wrong")
    page = text_of(_try("bea", PASSWORD), 429)
    when = ("Try again at <time datetime=", "which is in 14 min")
    has(page, *when, 'value="bea"', hides=[PASSWORD])
    assert _try("bea", PASSWORD, "192.0.2.2").status_code == 302
    assert _try("ada", PASSWORD).status_code == 302
    assert bea_api.get("/runs").status_code == 200
    text(bea, "/inbox/")
    _time_passes(14 * 60)
    for _ in range(50):
        _try("bea", "wrong")
    assert _try("bea", PASSWORD).status_code == 429
    _time_passes(61)
    assert _try("bea", PASSWORD).status_code == 302


def test_the_right_password_clears_ones_own_mistakes_only(looked_at: list[str]) -> None:
    for _ in range(3):
        assert [_try("bea", "wrong").status_code for _ in range(4)] == [200] * 4
        assert _try("bea", PASSWORD).status_code == 302
    for _ in range(20):
        _try("bea", "guess")
        _try("cyril", PASSWORD)
    assert looked_at.count("guess") == 5


def test_login_errors_do_not_reveal_which_users_exist(cast: Cast) -> None:
    User.objects.filter(username="cyril").update(is_active=False)
    told: dict[str, list[tuple[int, str]]] = {}
    for name, password in (("bea", "wr0ng"), ("cyril", PASSWORD), ("stranger", "wr0ng")):
        answers = [_try(name, password, f"192.0.2.{len(told) + 1}") for _ in range(6)]
        assert f'value="{name}"' in answers[-1].content.decode()
        told[name] = [(answer.status_code, _plain(answer, name)) for answer in answers]
        assert password not in answers[0].content.decode()
    assert told["bea"] == told["cyril"] == told["stranger"]


def _plain(answer: Any, name: str) -> str:
    """The sentences of the page, without parts that always differ."""
    lines = answer.content.decode().splitlines()
    (said,) = [line for line in lines if 'role="alert"' in line]
    return str(said.replace(name, "")).split(" at <time")[0]


def test_forwarded_addresses_count_only_behind_a_proxy(cast: Cast, settings: LazySettings) -> None:
    codes = [
        _try("bea", "wrong", **{"x-forwarded-for": f"198.51.100.{n}"}).status_code for n in range(6)
    ]
    assert codes[-1] == 429
    settings.BEHIND_PROXY = True
    for n in range(6):
        forged = {"x-forwarded-for": f"198.51.100.{n}, 203.0.113.9"}
        last = _try("bea", "wrong", **forged).status_code
    assert last == 429
    assert _try("bea", PASSWORD, **{"x-forwarded-for": "203.0.113.10"}).status_code == 302


def test_addresses_of_one_network_count_as_one() -> None:
    for told, known in (
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("unix:", None),
    ):
        request = HttpRequest()
        request.META["REMOTE_ADDR"] = told
        assert login.address(request) == known
