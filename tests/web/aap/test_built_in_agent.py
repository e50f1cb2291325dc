"""Agents outside ask by the built-in agent; people cannot start it."""

import pytest
from django.test import Client

from agents.catalogue.published import publish
from agents.external_agent import with_external_agent
from agents.registry import Registry
from runtime.errors import UnknownAgent
from runtime.ports import wiring
from tests.support.api_client import Caller
from tests.support.pages import in_order, shows
from tests.support.seeds import Cast
from tests.support.seeds import published as publish_one

AGENT = "external_agent"


@pytest.fixture(autouse=True)
def built_in(cast: Cast) -> None:
    publish(with_external_agent(Registry(agents={})))
    publish_one("joiner", input_schema={"type": "object"}, subagents=[])


def test_the_list_of_agents_folds_it(ada: Client) -> None:
    page = shows(ada, "/agents/", "1 agent, asked by agents outside", hides=[f"/{AGENT}/start/"])
    in_order(page, "/agents/joiner/", "asked by agents outside", f"/agents/{AGENT}/")
    shows(ada, f"/agents/?q={AGENT}", f"/agents/{AGENT}/", hides=["asked by agents outside"])


def test_its_page_offers_no_start(ada: Client) -> None:
    shows(ada, f"/agents/{AGENT}/", hides=["Start a run", "Schedule…", "Trigger…"])
    assert ada.get(f"/agents/{AGENT}/start/").status_code == 404


@pytest.mark.parametrize("kind", ["schedules", "triggers"])
def test_nothing_starts_it_later(ada: Client, kind: str) -> None:
    shows(ada, f"/{kind}/new/", "joiner", hides=[AGENT])
    assert ada.get(f"/{kind}/new/", {"agent": AGENT}).status_code == 404


def test_programs_do_not_see_it_and_cannot_start_it(ada_api: Caller) -> None:
    assert [agent["name"] for agent in ada_api.get("/agents").json()["items"]] == ["joiner"]
    answer = ada_api.post("/runs", {"agent": AGENT, "input": {}})
    assert (answer.status_code, answer.json()["field"]) == (422, "agent")
    with pytest.raises(UnknownAgent):
        wiring.resolve_catalogue().check_input(AGENT, {})  # as a schedule or a trigger does
