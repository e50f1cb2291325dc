"""A person reads and decides a request in Slack, with the checks of the page."""

from dataclasses import replace
from typing import Any

import pytest
from django.test import override_settings

from approvals import clock
from approvals.decisions.decide import undo
from approvals.models import Approval
from approvals.notices.slack_posts import post_request
from approvals.port.adapter import ApprovalService
from tests.support.office import BEA, Office, reseal
from tests.support.pages import has
from tests.support.seeds import decide
from tests.support.slack_server import Slack, send_due


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


def test_deny_asks_for_a_reason_in_a_window(slack: Slack, asked_bea: Approval) -> None:
    assert slack.press("deny").status_code == 200
    assert row(asked_bea).status == "pending"
    has(str(slack.windows), "Set the privileges of newhire to 3")
    answer = slack.submit(None).json()
    assert answer == {
        "response_action": "errors",
        "errors": {"reason": "The reason is required to deny it."},
    }
    assert slack.submit("Too many rights").content == b""
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
            Approval.objects.filter(pk=asked_bea.pk).update(expires_at=clock.now())
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
