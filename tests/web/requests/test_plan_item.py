"""The plan that an agent keeps: a checklist on the page of its run, and its item at work on each request."""

import pytest
from django.test import Client

from approvals.models import Approval
from runtime.core.run import frames
from runtime.core.values.enums import EffectClass
from runtime.ports.effects import ToolRequest, ToolResult
from tests.support.api_client import Caller
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import Office
from tests.support.pages import has, shows

HOSTILE = "Make <b>it</b>"
ITEM = {"item": "Set its\u202e level", "number": 2, "of": 3}


def _change(request: ToolRequest) -> ToolResult:
    return ToolResult(value=frames.plan_result(frames.change_plan(request.todo, **request.args)))


@pytest.fixture
def asked(office: Office) -> Approval:
    """The request of an agent that has ticked the first of three items."""
    office.effects.tools["plan"] = FakeTool(effect=EffectClass.READ, plan=True, body=_change)
    write = {"write": [HOSTILE, ITEM["item"], "Say so"]}
    office.effects.agents["account_agent"] = turns(
        ask(("plan", write), ("plan", {"done": [1], "doing": 2})),
        ask(("set_privileges", {"username": "newhire", "security_level": 3})),
        ask(("plan", {"done": [2]})),
        say("Ready."),
    )
    return office.request(office.start())


def test_run_and_request_show_the_plan_as_text_of_the_agent(
    ada: Client, bea: Client, office: Office, asked: Approval
) -> None:
    made = ("Make &lt;b&gt;it&lt;/b&gt;", "U+202E", "written by the agent")
    has(shows(ada, asked.run_id, "1 of 3 done", *made), hides=[HOSTILE, "\u202e"])
    page = shows(bea, asked, "item 2 of 3", "as it was when this was asked", *made)
    has(page, "1 of 3 done", hides=[HOSTILE, "\u202e", "<b><bdi>plan</bdi></b>"])
    office.approve(asked.run_id)
    shows(ada, asked.run_id, "2 of 3 done")
    shows(bea, asked, "item 2 of 3", "2 of 3 done")


def test_the_api_has_the_item(bea_api: Caller, asked: Approval) -> None:
    assert bea_api.get(f"/approvals/{asked.id}").json()["preview"] == {"plan": ITEM}


def test_without_a_plan_there_is_no_card(ada: Client, bea: Client, office: Office) -> None:
    run = office.start()
    shows(ada, run, hides=["Plan of"])
    shows(bea, office.request(run), hides=["Item of the plan"])
