"""What Slack's requests and messages must withstand."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from pytest_django import Settings

from approvals.models import Approval, AuditEntry, OutboxMessage
from approvals.notices.slack_posts import post_request
from approvals.people import accounts
from approvals.rules.policy import Demands
from tests.support.office import Office, reseal
from tests.support.pages import has
from tests.support.slack_server import SECRET, TOKEN, USERS, Slack, deliver, send_due, signed
from tests.web.slack.conftest import connect

FORM = {"command": "/signoff", "team_id": "T1", "user_id": "U1", "user_name": "x", "text": ""}
BODY = urlencode(FORM).encode()


def status(approval: Approval) -> str:
    return Approval.objects.get(pk=approval.pk).status


def refused(slack: Slack, text: str, approval: Approval) -> None:
    """The request is undecided, and the person who pressed is told this."""
    send_due()
    has(slack.ephemeral[-1]["text"], text)
    assert status(approval) == "pending"


def refusals(approval: Approval) -> list[str]:
    return [
        entry.act
        for entry in AuditEntry.objects.filter(run=approval.run_id, act__startswith="refused")
    ]


@pytest.mark.parametrize(
    "headers",
    [
        dict,
        lambda: signed(BODY, key="another secret"),
        lambda: signed(BODY + b"&text=link"),
        lambda: signed(BODY, at=time.time() - 301),
        lambda: signed(BODY, at=time.time() + 302),
        lambda: {**signed(BODY), "X-Slack-Signature": ""},
        lambda: {**signed(BODY), "X-Slack-Signature": "v0=é"},
        lambda: {**signed(BODY), "X-Slack-Request-Timestamp": "soon"},
        lambda: {**signed(BODY), "X-Slack-Request-Timestamp": "٣"},
        lambda: {**signed(BODY), "X-Slack-Request-Timestamp": "9" * 400},
    ],
)
def test_a_request_that_slack_did_not_sign_now_is_refused(
    headers: Callable[[], dict[str, str]], slack: Slack, db: None
) -> None:
    for path in ("/slack/commands", "/slack/actions"):
        assert deliver(path, BODY, headers()).status_code == 401
    assert deliver("/slack/commands", BODY, signed(BODY)).status_code == 200


def test_a_request_counts_once(slack: Slack, db: None) -> None:
    headers = signed(BODY, at=time.time() - 290)
    assert deliver("/slack/commands", BODY, headers).status_code == 200
    assert deliver("/slack/commands", BODY, headers).status_code == 401
    again = headers | {"X-Slack-Signature": f"v0=0,{headers['X-Slack-Signature']}"}
    assert deliver("/slack/commands", BODY, again).status_code == 401


@pytest.mark.parametrize("payload", ["", "{", "[]", "{}", '{"user": 1}', "[" * 100_000])
def test_a_malformed_payload_is_refused(payload: str, slack: Slack, db: None) -> None:
    assert slack.send("/slack/actions", {"payload": payload}).status_code == 400


def test_without_an_app_there_is_no_such_page(settings: Settings, db: None) -> None:
    settings.SIGNOFF_SLACK = None
    for path in ("/slack/commands", "/slack/actions"):
        assert deliver(path, BODY, signed(BODY)).status_code == 404


def test_a_stranger_decides_nothing(slack: Slack, asked_bea: Approval) -> None:
    assert slack.press("approve", "mallory").status_code == 200
    refused(slack, "connected to no account", asked_bea)


def test_a_person_whose_right_ended_decides_nothing(slack: Slack, asked_bea: Approval) -> None:
    accounts.set_groups("bea", ["requesters"], actor=None)
    slack.press("approve")
    refused(slack, "There is no such approval.", asked_bea)
    assert refusals(asked_bea) == ["refused: not_found"]


def test_a_disabled_person_is_a_stranger_also_after_enabling(
    slack: Slack, asked_bea: Approval
) -> None:
    accounts.disable("bea", actor=None)
    slack.press("approve")
    refused(slack, "connected to no account", asked_bea)
    accounts.enable("bea", actor=None)
    slack.press("approve")
    refused(slack, "connected to no account", asked_bea)


def test_the_requester_decides_nothing(
    slack: Slack, asked_bea: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(USERS, "ada", "U0ADA")
    connect("ada")
    slack.press("approve", "ada")
    refused(slack, "ada started this run", asked_bea)
    assert refusals(asked_bea) == ["refused: requester"]


def test_the_digest_of_an_older_version_decides_nothing(slack: Slack, asked_bea: Approval) -> None:
    old = slack.value("approve")
    reseal([asked_bea], sentence="Set the privileges of newhire to 5")
    slack.press("approve", value=old)
    refused(slack, "has changed since you saw it", asked_bea)
    slack.press("deny", value=old, reason="No")
    refused(slack, "has changed since you saw it", asked_bea)


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_a_forged_button_at_high_risk_decides_nothing(
    verdict: str, slack: Slack, asked_bea: Approval
) -> None:
    reseal([asked_bea], risk="high")
    value = f"{asked_bea.pk} {asked_bea.approval_digest}"
    slack.press(verdict, value=value, reason="Because")
    refused(slack, "decided on its page", asked_bea)
    assert refusals(asked_bea) == ["refused: page_only"]


def test_a_button_decides_nothing_once_the_installation_forbids_it(
    slack: Slack, asked_bea: Approval, settings: Settings
) -> None:
    settings.SIGNOFF_SLACK = replace(slack.app, decides=False)
    slack.press("approve")
    refused(slack, "decided on its page", asked_bea)


def test_a_click_after_another_decision_is_told_of_it(slack: Slack, asked_bea: Approval) -> None:
    slack.press("approve")
    slack.press("deny")
    send_due()
    has(slack.ephemeral[-1]["text"], "already closed by bea")


HOSTILE = (
    "<!channel> <@U0ANNE> <https://evil.example|ok> *b* &lt; http://evil.example www.evil.example"
)


def test_values_of_agents_are_no_markup(slack: Slack, linked: None, office: Office) -> None:
    office_text = f"{HOSTILE}\nsecurity_level: 1 \u202e\u200b"
    args = {"username": office_text, "security_level": 3}
    request = office.request(office.start(args=args))
    reseal([request], sentence=f"Create {HOSTILE}")
    post_request("bea", request.pk, "")
    send_due()
    post = slack.post
    assert not {"<!", "<@", "<h"} & {post["text"][i : i + 2] for i in range(len(post["text"]))}
    for block in post["blocks"]:
        for text in (block.get("text"), *block.get("elements", ())):
            if isinstance(text, dict) and text["type"] == "mrkdwn":
                assert text["text"].startswith("<!date^")
    [arguments] = [
        b["text"]["text"]
        for b in post["blocks"]
        if "security_level" in b.get("text", {}).get("text", "")
    ]
    assert arguments.count("\n") == 1  # one line for each argument
    assert "\u202e" not in arguments
    assert "http://" not in slack.text.replace("http://testserver", "").replace(
        "http://127.0.0.1:8000/a/", ""
    )
    assert "www.evil" not in slack.text
    assert (post["link_names"], post["parse"], post["unfurl_links"]) == (False, "none", False)


@pytest.mark.parametrize("case", ["a long call", "a second factor"])
def test_what_a_message_cannot_decide_has_a_link_only(
    case: str, slack: Slack, linked: None, office: Office
) -> None:
    name = "x" * 2900 if case == "a long call" else "newhire"
    request = office.request(office.start(args={"username": name, "security_level": 3}))
    if case == "a second factor":
        reseal([request], rule=Demands(rule="Fresh", step_up=True).stored())
    post_request("bea", request.pk, "")
    send_due()
    assert slack.verdicts == ["open"]
    slack.press("approve", value=f"{request.pk} {request.approval_digest}")
    refused(slack, "decided on its page", request)


def test_no_secret_leaves(
    slack: Slack, asked_bea: Approval, caplog: pytest.LogCaptureFixture
) -> None:
    slack.faults = ["invalid_auth", 500]
    slack.press("approve", "mallory")
    send_due()
    stored = json.dumps(list(OutboxMessage.objects.values()), default=str)
    for secret in (TOKEN, SECRET):
        assert secret not in stored + caplog.text + slack.text + repr(slack.app)
