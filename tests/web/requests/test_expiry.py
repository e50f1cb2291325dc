"""Expiry of requests: the time left, expired requests, and late decisions."""

from datetime import datetime, timedelta
from uuid import UUID

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from approvals.adapter import Approvals
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.office import Office


@pytest.fixture
def overdue(suspended: UUID, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """A run whose approval has expired, before the sweeper has recorded that."""
    at = timezone.now() + timedelta(days=8)
    seeds.set_clock(monkeypatch, at)
    return suspended


@pytest.fixture
def expired(office: Office, overdue: UUID) -> UUID:
    """The same run after the engine has recorded the expiry."""
    Approvals().expire(office.request(overdue).gate)
    return overdue


def _deny(client: Client, office: Office, run: UUID) -> HttpResponse:
    request = office.request(run)
    form = {"digest": request.request_digest, "reason": "my own words"}
    return client.post(f"/a/{request.id}/deny/", form)  # type: ignore[return-value]


def test_the_inbox_and_the_page_say_how_much_time_is_left(
    bea: Client, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    assert isinstance(request.expires_at, datetime)
    page = bea.get("/inbox/").content.decode()
    assert f'<time datetime="{request.expires_at.isoformat()}" data-countdown>in 6 d</time>' in page
    page = bea.get(f"/a/{request.id}/").content.decode()
    assert "data-countdown>in 6 d</time>" in page
    assert "Denied automatically if no reviewer decides by then." in page


@pytest.mark.parametrize("state", ["overdue", "expired"])
def test_an_expired_request_offers_no_decision(
    bea: Client, office: Office, state: str, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue(state)
    page = bea.get(f"/a/{office.request(run).id}/").content.decode()
    assert "Expired: no person decided in time" in page
    assert "can start the run again" in page
    assert "/approve/" not in page


@pytest.mark.parametrize("state", ["overdue", "expired"])
def test_a_late_decision_is_gone_and_keeps_its_words(
    bea: Client,
    bea_api: Caller,
    office: Office,
    state: str,
    request: pytest.FixtureRequest,
) -> None:
    run = request.getfixturevalue(state)
    answer = _deny(bea, office, run)
    assert answer.status_code == 410
    page = answer.content.decode()
    assert "Too late: this has expired" in page
    assert "my own words" in page
    asked = office.request(run)
    body = {"verdict": "approve", "digest": asked.request_digest}
    answer = bea_api.post(f"/approvals/{asked.id}/decision", body)
    assert (answer.status_code, answer.json()["code"]) == (410, "expired")


def test_the_run_says_that_it_expired(ada: Client, office: Office, expired: UUID) -> None:
    office.advance(expired)
    page = ada.get(f"/runs/{expired}/").content.decode()
    assert "expired without a decision" in page
    page = ada.get(f"/runs/{expired}/?tab=transcript").content.decode()
    assert "decided by <bdi>the deadline</bdi>" in page


def test_the_inbox_omits_expired_requests(bea: Client, expired: UUID) -> None:
    assert "You're all caught up" in bea.get("/inbox/").content.decode()
