"""The page of a request and the API show what the agent outside says, and what became of the approval there."""

from typing import Any

import pytest
from django.test import Client

from tests.support.api_client import Caller
from tests.support.pages import shows
from tests.web.aap.conftest import BODY, Desk, Door

CONTEXT = {"framework": "<b>langgraph</b>", "call_id": "thread:<i>1</i>"}
UNCHECKED = "said by the agent outside, not checked"


@pytest.fixture
def made(bot: Door, desk: Desk) -> str:
    request = str(bot.ask({**BODY, "context": CONTEXT})["id"])
    desk.advance(request)
    return request


def claim(bea_api: Caller, desk: Desk, made: str) -> Any:
    return bea_api.get(f"/approvals/{desk.approval(made).id}").json()["external"]


def test_a_request_names_who_asks_and_marks_what_it_says(
    made: str, desk: Desk, bea: Client, bea_api: Caller
) -> None:
    page = f"/a/{desk.approval(made).id}/"
    shows(
        bea,
        page,
        "Deploy bot",
        "&lt;b&gt;langgraph",
        UNCHECKED,
        "thread:&lt;i&gt;1",
        "<bdi>Let Deploy bot call deploy</bdi>",
        hides=["<b>langgraph", "<i>1", "not used by"],
    )
    external = claim(bea_api, desk, made)
    assert (external["instance_name"], external["context"]) == ("Deploy bot", CONTEXT)
    assert external["framework"] == CONTEXT["framework"]
    assert external["valid_until"] is external["used_at"] is external["outcome"] is None


def test_a_request_offers_only_what_the_protocol_can_carry(
    made: str, desk: Desk, bea: Client
) -> None:
    page = f"/a/{desk.approval(made).id}/"
    impossible = ("data-edit", "Request changes", "Give the result yourself", "Ask the agent")
    shows(bea, page, "runs once, exactly so", "Remark", hides=[*impossible, "not given"])


def test_a_request_says_what_became_of_its_approval(
    made: str, bot: Door, desk: Desk, bea: Client, bea_api: Caller
) -> None:
    desk.decide(made)
    page = f"/a/{desk.approval(made).id}/"
    shows(bea, page, "approved, not used by", "valid until")
    decision = bot.read(made)["decision"]
    assert claim(bea_api, desk, made)["valid_until"][:19] == decision["expires_at"][:19]
    assert bot.use(made).status_code == 200
    shows(bea, page, "not reported yet", hides=["not used by"])
    assert bot.report(made, "failed", note="no <em>disk</em>").status_code == 200
    desk.advance(made)
    shows(bea, page, "failed", "no &lt;em&gt;disk", hides=["not reported yet"])
    external = claim(bea_api, desk, made)
    assert (external["outcome"], external["note"]) == ("failed", "no <em>disk</em>")
    ended = "The call failed: no &lt;em&gt;disk"
    shows(bea, "/runs/", "deploy · Deploy bot", ended, hides=["aap:"])
    shows(bea, f"/runs/{made}/", "<h1><bdi>External agent</bdi> <span", ended)
    assert external["used_at"] < external["reported_at"]
