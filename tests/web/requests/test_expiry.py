"""Expiry of requests: the time left, expired requests, and late decisions."""

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from approvals.adapter import Approvals
from approvals.models import Request
from tests.support import seeds
from tests.support.api_client import Caller, code_of
from tests.support.office import Office
from tests.support.pages import has, send, shows, text_of


@pytest.fixture(params=["overdue", "recorded"])
def expired(
    request: pytest.FixtureRequest, asked: Request, monkeypatch: pytest.MonkeyPatch
) -> Request:
    """A request that has expired, before and after the sweeper has recorded that."""
    seeds.set_clock(monkeypatch, timezone.now() + timedelta(days=8))
    if request.param == "recorded":
        Approvals().expire(asked.gate)
    return asked


def test_the_inbox_and_the_page_say_how_much_time_is_left(bea: Client, asked: Request) -> None:
    assert isinstance(asked.expires_at, datetime)
    left = f'<time datetime="{asked.expires_at.isoformat()}" data-countdown>in 6 d</time>'
    shows(bea, "/inbox/", left)
    rule = "Denied automatically if no reviewer decides by then."
    shows(bea, asked, "data-countdown>in 6 d</time>", rule)


def test_an_expired_request_offers_no_decision(bea: Client, expired: Request) -> None:
    why = ("Expired: no person decided in time", "can start the run again")
    shows(bea, expired, *why, hides=["/approve/"])


def test_a_late_decision_is_gone_and_keeps_its_words(
    bea: Client, bea_api: Caller, expired: Request
) -> None:
    page = text_of(send(bea, expired, "deny", reason="my own words"), 410)
    has(page, "Too late: this has expired", "my own words")
    body = {"verdict": "approve", "digest": expired.request_digest}
    answer = bea_api.post(f"/approvals/{expired.id}/decision", body)
    assert code_of(answer) == (410, "expired")


def test_inbox_and_run_say_that_it_expired(
    ada: Client, bea: Client, office: Office, expired: Request
) -> None:
    Approvals().expire(expired.gate)
    shows(bea, "/inbox/", "You're all caught up")
    office.advance(expired.run_id)
    shows(ada, expired.run_id, "expired without a decision")
    shows(ada, f"/runs/{expired.run_id}/?tab=transcript", "decided by <bdi>the deadline</bdi>")
