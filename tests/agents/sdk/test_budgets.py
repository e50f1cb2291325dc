"""An agent's budget, and what its model's replies cost: from the bundled price list, frozen with the reply."""

import socket
import threading
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from pytest_django import Settings

from agents.llm import pricing
from agents.llm.messages import from_provider
from agents.sdk import Budget
from agents.sdk.scripts import say
from runtime.core import budgets
from runtime.core.budgets import Rates
from tests.support.specs import handler_of, spec_of

counter = spec_of("counter", budget=Budget(turns=5, usd="1.50", seconds=60))
DEAREST = Rates(input=2_500_000, output=10_000_000)


def cost(model: str, *, given: int, said: int = 0, cached: int = 0) -> int | None:
    reply = ModelResponse(
        parts=[TextPart(content="done")],
        usage=RequestUsage(input_tokens=given, output_tokens=said, cache_read_tokens=cached),
        model_name=model,
        provider_name="openai",
    )
    return from_provider(counter, reply).cost


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the network to this thread. One of an earlier test may still use it."""
    here, connect = threading.get_ident(), socket.socket.connect

    def refuse(one: socket.socket, address: Any) -> None:
        assert threading.get_ident() != here, "the network was asked"
        connect(one, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    pricing._dearest.cache_clear()


@pytest.mark.usefixtures("alone")
def test_an_agents_budget_and_current_rates_are_frozen(settings: Settings) -> None:
    handler = handler_of(counter, spec_of("other", budget=Budget()))
    facts = handler.agent("counter")
    assert facts.budget == budgets.Budget(turns=5, micros=1_500_000, seconds=60)
    assert handler.agent("other").budget is None
    assert facts.rates == Rates(input=0, output=0)  # a script costs nothing
    assert from_provider(counter, say("done")).cost == 0
    settings.ABEYANCE_MODEL = "openai:gpt-4o"
    assert handler.agent("counter").rates == DEAREST


@pytest.mark.usefixtures("alone")
def test_a_providers_price_comes_from_the_bundled_list(settings: Settings) -> None:
    settings.ABEYANCE_MODEL = "openai:gpt-4o"
    assert cost("gpt-4o-2024-08-06", given=1_000, said=100) == 2_500 + 1_000
    assert cost("gpt-4o", given=1_000, said=100, cached=1_000) == 1_250 + 1_000
    assert cost("gpt-4o-mini", given=1) == 1  # a part of a millionth counts as a whole one
    assert cost("our-own-llama", given=9) is None


@pytest.mark.parametrize(
    ("models", "rates"),
    [
        ("openai:gpt-4o-mini,openai:gpt-4o", DEAREST),
        ("openai:gpt-4o,openai:our-own-llama", None),
    ],
)
@pytest.mark.usefixtures("alone")
def test_the_dearest_of_several_models_counts(
    settings: Settings, models: str, rates: Rates | None
) -> None:
    settings.ABEYANCE_MODEL = models
    assert pricing.rates_of(counter) == rates
