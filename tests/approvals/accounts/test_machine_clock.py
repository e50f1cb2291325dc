"""A machine whose clock is wrong: only the clock of Postgres decides."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.contrib.sessions.models import Session
from django.http import HttpRequest

from approvals import clock
from approvals.models import LoginFailures, Token
from approvals.outbox import webhook
from approvals.people import accounts, login, tokens
from approvals.rights.principals import ALL_SCOPES
from tests.support.pages import log_in
from tests.support.seeds import Cast


@pytest.fixture(params=[-26, 26], ids=["behind", "ahead"])
def wrong(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set the clock of this machine wrong by some hours."""
    at = datetime.now(UTC) + timedelta(hours=request.param)
    with time_machine.travel(at, tick=True):
        yield


def test_a_token_ends_by_the_clock_of_postgres(cast: Cast, wrong: None) -> None:
    token, plain = tokens.create(cast.bea, ALL_SCOPES, days=1)
    assert tokens.authenticate(plain) is not None
    token.refresh_from_db()
    assert token.last_used_at is not None
    assert abs(token.last_used_at - clock.read_time()) < timedelta(minutes=1)
    over = Token(owner=cast.bea, scopes=sorted(ALL_SCOPES))
    assert tokens.authenticate(tokens.issue(over, days=-1)) is None
    tokens.revoke(token.public_id, actor="bea")
    tokens.create(cast.bea, ALL_SCOPES)
    tokens.revoke_all(cast.bea)
    for row in Token.objects.all():
        assert row.revoked_at is not None
        assert abs(row.revoked_at - clock.read_time()) < timedelta(minutes=1)


def test_wrong_passwords_lock_for_a_quarter_of_an_hour(cast: Cast, wrong: None) -> None:
    request = HttpRequest()
    for _ in range(6):
        login.reauthenticate(request, "bea", "guess")
    until = login.find_refusal_end(request)
    assert until is not None
    assert timedelta(minutes=14) < until - clock.read_time() <= timedelta(minutes=15)
    assert LoginFailures.objects.get(username="bea").failures == 5


def test_signing_out_everywhere_ends_each_session(cast: Cast, wrong: None) -> None:
    with time_machine.travel(
        clock.read_time(), tick=True
    ):  # on another machine, whose clock is right
        log_in(cast.bea)
    accounts.end_sessions(cast.bea)
    assert not Session.objects.exists()


def test_a_message_is_signed_with_the_time_of_postgres(
    cast: Cast, wrong: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver refuses one that is older than five minutes."""
    sent: list[dict[str, str]] = []
    monkeypatch.setattr(
        webhook, "send_request", lambda _, headers, *__, **___: sent.append(headers)
    )
    webhook.post("https://example.org", secrets=["whsec_c2VjcmV0"], message_id="1", body="{}")
    assert abs(int(sent[0]["webhook-timestamp"]) - clock.read_time().timestamp()) < 60
