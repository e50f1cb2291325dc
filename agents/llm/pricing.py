"""Computes the prices of models from the list in the package genai-prices, without a request.

A script costs nothing. If the list does not contain a model, neither the model nor its replies have a price.
"""

from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

from pydantic_ai.messages import ModelResponse

from agents.endpoints import ProviderKind, provider_of
from agents.llm import providers
from agents.sdk.spec import AgentSpec
from runtime.core.run.budgets import MICROS, Rates

_SAMPLE = 100_000  # tokens, for models that charge more for long conversations
_LISTED_AS = {ProviderKind.GEMINI: "google", ProviderKind.BEDROCK: "aws"}


def rates_of(agent: AgentSpec) -> Rates | None:
    """Return the price of the agent's model, of several the highest. None if one has no known price."""
    if providers.is_scripted(agent):
        return Rates(input=0, output=0)
    return _highest_rates(providers.models_of(agent))


def cost_of(agent: AgentSpec, response: ModelResponse) -> int | None:
    """Return the cost of a reply in micro-units of US dollars, rounded up; None if unknown."""
    if providers.is_scripted(agent):
        return 0
    if response.usage.unmeasured_requests or response.model_name is None:
        return None
    provider_name = _listed_as(response.provider_name or "")
    price = _price(provider_name, response.model_name, response.usage)
    return None if price is None else _micros(price)


@lru_cache
def _highest_rates(models: tuple[str, ...]) -> Rates | None:
    sent, replied = _highest(models, input_tokens=_SAMPLE), _highest(models, output_tokens=_SAMPLE)
    return None if sent is None or replied is None else Rates(input=sent, output=replied)


def _highest(models: tuple[str, ...], **sample: int) -> int | None:
    """Return the highest price of a million of such tokens, None if one of the models has no price."""
    from genai_prices import Usage

    names = [(_listed_as(provider_of(name)), name.partition(":")[2]) for name in models]
    prices = [price for name in names if (price := _price(*name, Usage(**sample))) is not None]
    return _micros(max(prices) * (1_000_000 // _SAMPLE)) if len(prices) == len(names) else None


def _listed_as(provider_name: str) -> str:
    """Return a provider's name in the price list. A server that only speaks OpenAI's protocol keeps its own name."""
    endpoint = providers.read_endpoints().get(provider_name)
    if endpoint is None or endpoint.is_compatible:
        return provider_name
    return _LISTED_AS.get(endpoint.kind, endpoint.kind)


def _price(provider_name: str, model: str, usage: Any) -> Decimal | None:
    from genai_prices import calc_price

    try:
        return calc_price(usage, model, provider_id=provider_name).total_price
    except (LookupError, ValueError):
        return None


def _micros(price: Decimal) -> int:
    return int((price * MICROS).to_integral_value(rounding=ROUND_CEILING))
