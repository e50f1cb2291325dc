"""Slack that is slow, down, or refuses delays nothing else, and loses nothing."""

import pytest

from approvals.models import Approval, OutboxMessage
from approvals.notices.slack_posts import post_request
from approvals.outbox import webhook
from tests.support.office import BEA, Office
from tests.support.pages import has
from tests.support.seeds import decide
from tests.support.slack_server import Slack, pass_time, send_due


@pytest.fixture
def request_of(linked: None, office: Office) -> Approval:
    request = office.request(office.start())
    post_request("bea", request.pk, "")
    return request


def message() -> OutboxMessage:
    return OutboxMessage.objects.get(kind="slack.post")


@pytest.mark.parametrize("fault", [429, 500, "internal_error", "hang"])
def test_a_failed_attempt_is_made_again(
    fault: object, slack: Slack, request_of: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "LIMIT_SECONDS", 0.3)
    slack.faults = [fault]
    send_due()
    assert slack.posts == {}
    waiting = message()
    assert waiting.ended_at is None
    if fault == 429:
        assert waiting.occurred_at is not None
        assert (waiting.next_at - waiting.occurred_at).total_seconds() > 25  # Retry-After
    pass_time()
    send_due()
    assert len(slack.posts) == 1
    assert message().ending == "delivered"


def test_an_update_waits_for_its_post(slack: Slack, request_of: Approval) -> None:
    slack.faults = ["internal_error"]
    send_due()
    decide(request_of, BEA)
    send_due()
    assert slack.calls == ["chat.postMessage"]
    pass_time()
    send_due()
    assert slack.posts == {}
    assert set(OutboxMessage.objects.exclude(kind="notice").values_list("ending", flat=True)) == {
        "dropped"
    }


def test_an_update_of_a_deleted_message_is_dropped(slack: Slack, request_of: Approval) -> None:
    send_due()
    slack.posts.clear()
    decide(request_of, BEA)
    send_due()
    assert OutboxMessage.objects.get(kind="slack.update").ending == "dropped"


def test_updates_may_be_repeated(slack: Slack, request_of: Approval) -> None:
    send_due()
    decide(request_of, BEA)
    send_due()
    before = slack.post
    OutboxMessage.objects.filter(kind="slack.update").update(ended_at=None, ending=None)
    pass_time()
    send_due()
    assert slack.post == before


def test_a_post_whose_record_was_lost_is_repeated_with_its_id(
    slack: Slack, request_of: Approval
) -> None:
    send_due()
    OutboxMessage.objects.filter(kind="slack.post").update(ended_at=None, ending=None)
    pass_time()
    send_due()
    ids = [post["metadata"]["event_payload"]["id"] for post in slack.posts.values()]
    assert ids == [str(message().id)] * 2


def test_a_window_that_does_not_open_is_said(
    slack: Slack, asked_bea: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("approvals.web.api.slack.SECONDS", 0.3)
    slack.faults = ["hang"]
    assert slack.press("deny").status_code == 200
    send_due()
    has(slack.ephemeral[-1]["text"], "no window now", f"/a/{asked_bea.pk}/")
