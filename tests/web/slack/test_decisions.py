"""A person reads and decides a request in Slack, with the checks of the page."""

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client, override_settings

from approvals import clock
from approvals.decisions.decide import undo
from approvals.models import Approval, NoticeChannel, OutboxMessage
from approvals.notices import due, slack_posts
from approvals.notices.slack_posts import post_request
from approvals.outbox import messages, webhook
from approvals.outbox.messages import Sender
from approvals.port.adapter import ApprovalService
from runtime.core.values.limits import MAX_REASON
from tests.support.office import BEA, Office, reseal
from tests.support.pages import has
from tests.support.seeds import PASSWORD, Cast, decide
from tests.support.slack_server import Slack, pass_time, send_due
from tests.web.slack.test_linking import link


def row(approval: Approval) -> Approval:
    return Approval.objects.get(pk=approval.pk)


def test_a_message_has_the_call_and_its_buttons(slack: Slack, asked_bea: Approval) -> None:
    assert slack.post["channel"] == "D0BEA"
    has(slack.text, "Set the privileges of newhire to 3", "Medium risk", "for ada", "<!date^")
    has(slack.text, "security_level: 3", f"/a/{asked_bea.pk}/")
    assert slack.verdicts == ["approve", "deny", "open"]
    assert slack.value("approve") == f"{asked_bea.pk} {asked_bea.approval_digest}"
    post_request("bea", asked_bea.pk, "")
    send_due()
    assert len(slack.posts) == 1


def test_approve_decides_as_the_person_and_the_message_says_so(
    slack: Slack, asked_bea: Approval, office: Office
) -> None:
    assert slack.press("approve").status_code == 200
    approval = row(asked_bea)
    assert (approval.status, approval.decided_by, approval.channel) == ("approved", "bea", "slack")
    send_due()
    has(slack.text, "Approved by bea")
    assert slack.verdicts == ["open"]
    assert office.advance(asked_bea.run_id).status == "completed"
    assert office.started(asked_bea.run_id) == 1


def test_deny_takes_the_reason_that_was_typed(slack: Slack, asked_bea: Approval) -> None:
    assert slack.press("deny").status_code == 200
    assert row(asked_bea).status == "pending"
    has(slack.ephemeral[-1]["text"], "The reason is required to deny it.")
    slack.press("deny", reason="x" * (MAX_REASON + 1))
    assert row(asked_bea).status == "pending"
    assert slack.press("deny", reason="Too many rights").content == b""
    approval = row(asked_bea)
    assert (approval.status, approval.reason) == ("denied", "Too many rights")
    send_due()
    has(slack.text, "Denied by bea")


@pytest.mark.parametrize("end", ["decided", "cancelled", "expired", "undone"])
def test_the_message_follows_what_happens_elsewhere(
    end: str, slack: Slack, asked_bea: Approval, office: Office
) -> None:
    match end:
        case "decided":
            decide(asked_bea, BEA, "deny", "No")
        case "cancelled":
            office.cancel(asked_bea.run_id, "No")
        case "expired":
            Approval.objects.filter(pk=asked_bea.pk).update(expires_at=clock.read_time())
            ApprovalService().expire(asked_bea.gate)
        case "undone":
            with override_settings(SIGNOFF_UNDO_SECONDS=60):
                decide(asked_bea, BEA)
                send_due()
                assert slack.verdicts == ["open"]
                undo(approval_id=asked_bea.pk, actor=BEA)
    send_due()
    texts = {"decided": "Denied by bea", "cancelled": "Cancelled", "expired": "Expired"}
    has(slack.text, texts.get(end, "Medium risk"))
    assert ("approve" in slack.verdicts) == (end == "undone")


def test_nothing_is_posted_that_is_decided_already(
    slack: Slack, linked: None, office: Office
) -> None:
    request = office.request(office.start())
    post_request("bea", request.pk, "")
    decide(request, BEA)
    send_due()
    assert slack.calls == []


@pytest.mark.parametrize(
    ("risk", "decides", "verdicts"),
    [("low", True, 3), ("medium", True, 3), ("high", True, 1), ("low", False, 1)],
)
def test_buttons_are_for_low_and_medium_risk_if_the_installation_allows_them(
    risk: str,
    decides: bool,
    verdicts: int,
    slack: Slack,
    linked: None,
    office: Office,
    settings: Any,
) -> None:
    settings.SIGNOFF_SLACK = replace(slack.app, decides=decides)
    request = office.request(office.start())
    reseal([request], risk=risk)
    post_request("bea", request.pk, "")
    send_due()
    assert len(slack.buttons()) == verdicts


# The channel


def look() -> None:
    """Have each open message looked at now, until none adds another."""
    for _ in range(3):
        pass_time()
        sender = Sender({**due.KINDS, **slack_posts.KINDS})
        while (message := messages.claim()) is not None:
            sender.send_one(message)


def last(slack: Slack) -> str:
    return str(list(slack.posts.values())[-1])


def test_connecting_adds_the_channel_and_requests_come_there(
    slack: Slack, bea: Client, cast: Cast, office: Office
) -> None:
    bea.post(link(slack), {"password": PASSWORD})
    look()
    has(slack.text, "Slack is on")
    slack.posts.clear()
    request = office.request(office.start())
    reseal([request], risk="high")
    look()
    has(slack.text, "High risk", "security_level: 3", f"/a/{request.pk}/")
    assert slack.verdicts == ["open"]
    look()
    assert len(slack.posts) == 1


@pytest.mark.parametrize(
    ("limit", "sentence", "arguments"),
    [("nothing", False, False), ("title", True, False), ("arguments", True, True)],
)
def test_a_message_shows_as_much_as_the_installation_allows(
    limit: str,
    sentence: bool,
    arguments: bool,
    slack: Slack,
    linked: None,
    office: Office,
    settings: Any,
) -> None:
    settings.SIGNOFF_NOTICES = {"slack": limit}
    request = office.request(office.start())
    slack_posts.post_request("bea", request.pk, "")
    look()
    text = last(slack)
    assert ("Set the privileges" in text) == sentence
    assert ("security_level" in text) == arguments
    assert ("'approve'" in text) == arguments


def test_without_the_channel_nothing_is_posted(slack: Slack, linked: None, office: Office) -> None:
    request = office.request(office.start())
    slack_posts.post_request("bea", request.pk, "")
    NoticeChannel.objects.all().delete()
    look()
    assert slack.posts == {}


# Delivery


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


def test_slack_that_hangs_delays_no_answer_to_a_click(
    slack: Slack, asked_bea: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("approvals.web.api.slack.SECONDS", 0.3)
    slack.faults = ["hang"]
    assert slack.press("deny").status_code == 200
    assert slack.ephemeral == []
