"""The open items of a plan end each request to a model, in the form of each provider."""

from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.endpoints import Endpoint
from agents.registry import Registry
from runtime.core.run import frames
from runtime.execution.effects.perform import perform
from tests.provider.test_llm_call import KINDS
from tests.support.provider.server import KEY, Provider
from tests.support.provider.wire import Wire, anthropic, use_part
from tests.support.specs import CREATE, NEWCOMER, Frame

PLAN = frames.change_plan((), write=["Look", "Book"], done=[1], doing=2)
WORDS = "Your plan: 1 of 2 items are done, and item 2 is at work. Open:\n2. Book"


def asked(frame: Frame) -> None:
    frame.ask()
    frame.settle(("returned", {"id": "7"}))
    perform(frame.handler, replace(frame.request(), todo=PLAN))
    perform(frame.handler, replace(frame.request(), todo=PLAN, summary=True))


def test_anthropic(wire: Wire, settings: Settings, frame: Frame) -> None:
    settings.SIGNOFF_MODEL = "claude:m"
    wire.answers += [anthropic(use_part(CREATE.tool, CREATE.args))] * 3
    asked(frame)
    *_, reminded, summed = wire.bodies
    told = [part for one in reminded["messages"][-2:] for part in one["content"]]
    assert [part["type"] for part in told] == ["tool_result", "text"]
    assert told[-1]["text"] == WORDS
    assert WORDS not in str(summed)


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row[0])
def test_openai(provider: Provider, hr: Registry, settings: Settings, row: tuple[Any, ...]) -> None:
    name, kind, provider.root, model, *_ = row
    endpoint = Endpoint(name=name, kind=kind, url=provider.url, key=KEY)
    settings.SIGNOFF_PROVIDERS = {name: endpoint}
    agent = replace(hr.agents["account_agent"], model=None, models=(f"{name}:{model}",))
    asked(Frame(AgentEffects(Registry(agents={agent.name: agent})), agent.name, NEWCOMER))
    *_, reminded, summed = provider.bodies
    assert [one["role"] for one in reminded["messages"]][-2:] == ["tool", "user"]
    assert reminded["messages"][-1]["content"] == WORDS
    assert WORDS not in str(summed)
