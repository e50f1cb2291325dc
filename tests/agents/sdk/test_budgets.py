"""An agent's budget, and what its model's replies cost: from the bundled price list, frozen with the reply."""

import socket
import threading
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from pytest_django import Settings

from agents.errors import DefinitionError
from agents.llm import pricing
from agents.llm.messages import from_provider
from agents.sdk import Budget
from agents.sdk.scripts import say
from agents.sdk.spec import AgentSpec
from runtime.core import budgets
from runtime.core.budgets import Rates
from tests.support.specs import handler_of, spec_of


def made(budget: Budget | None = None) -> AgentSpec:
    return spec_of("counter", budget=budget)


def reply(model: str, *, given: int, said: int, cached: int = 0) -> ModelResponse:
    return ModelResponse(
        parts=[TextPart(content="done")],
        usage=RequestUsage(input_tokens=given, output_tokens=said, cache_read_tokens=cached),
        model_name=model,
        provider_name="openai",
    )


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the network to this thread. One of an earlier test may still use it."""
    here, connect = threading.get_ident(), socket.socket.connect

    def refuse(one: socket.socket, address: Any) -> None:
        assert threading.get_ident() != here, "the network was asked"
        connect(one, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    pricing._dearest.cache_clear()


def test_an_agents_budget_is_frozen_when_its_frame_opens() -> None:
    facts = handler_of(made(Budget(turns=5, usd="1.50", seconds=60))).agent("counter")
    assert facts.budget == budgets.Budget(turns=5, micros=1_500_000, seconds=60)
    assert made().budget is None
    assert made(Budget()).budget is None


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        (Budget(turns=0), "agent counter: its budget: turns must be between 1 and 1000000"),
        (Budget(depth=17), "agent counter: its budget: depth must be between 1 and 16"),
        (Budget(usd="free"), "agent counter: its budget: usd must be an amount such as 1.50"),
    ],
)
def test_a_budget_that_cannot_work_is_named(budget: Budget, problem: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        made(budget)
    assert str(refused.value) == problem


def test_a_script_costs_nothing() -> None:
    assert pricing.rates_of(made()) == Rates(input=0, output=0)
    assert from_provider(made(), say("done")).cost == 0


@pytest.mark.usefixtures("alone")
def test_a_providers_price_comes_from_the_bundled_list(settings: Settings) -> None:
    settings.ABEYANCE_MODEL = "openai:gpt-4o"
    assert pricing.rates_of(made()) == Rates(input=2_500_000, output=10_000_000)
    answer = from_provider(made(), reply("gpt-4o-2024-08-06", given=1_000, said=100))
    assert answer.cost == 2_500 + 1_000
    cached = reply("gpt-4o", given=1_000, said=100, cached=1_000)
    assert from_provider(made(), cached).cost == 1_250 + 1_000


@pytest.mark.usefixtures("alone")
def test_a_part_of_a_millionth_counts_as_a_whole_one(settings: Settings) -> None:
    settings.ABEYANCE_MODEL = "openai:gpt-4o-mini"
    assert pricing.cost_of(made(), reply("gpt-4o-mini", given=1, said=0)) == 1


@pytest.mark.usefixtures("alone")
def test_a_model_that_the_list_does_not_know_has_no_price(settings: Settings) -> None:
    settings.ABEYANCE_MODEL = "openai:our-own-llama"
    assert pricing.rates_of(made()) is None
    assert from_provider(made(), reply("our-own-llama", given=9, said=9)).cost is None


@pytest.mark.usefixtures("alone")
def test_the_dearest_of_several_models_counts(settings: Settings) -> None:
    settings.ABEYANCE_MODEL = "openai:gpt-4o-mini,openai:gpt-4o"
    assert pricing.rates_of(made()) == Rates(input=2_500_000, output=10_000_000)
    settings.ABEYANCE_MODEL = "openai:gpt-4o,openai:our-own-llama"
    assert pricing.rates_of(made()) is None


@pytest.mark.usefixtures("alone")
def test_an_agents_rates_are_those_of_its_current_model(settings: Settings) -> None:
    handler = handler_of(made())
    assert handler.agent("counter").rates == Rates(input=0, output=0)
    settings.ABEYANCE_MODEL = "openai:gpt-4o"
    assert handler.agent("counter").rates == Rates(input=2_500_000, output=10_000_000)
