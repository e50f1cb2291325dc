"""Counts the tokens of a call and computes its price, from the list in the package genai-prices, without a request.

A script costs nothing. If the list does not contain a model, neither the model nor its replies have a price.

Tokens are those that the provider reports, or estimated where that is missing or implausible, and for scripts. A token
has 4 bytes of text on average, never less than one, and hardly ever more than 16. So a count is believed within a
quarter of the estimate and 4 times as much. The tokens of a reply may be up to the longest reply of any model, because
thoughts are paid for and need not be sent.
"""

from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from agents.endpoints import ProviderKind, provider_of
from agents.llm import providers
from agents.sdk.spec import AgentSpec
from runtime.core.values.budgets import MICROS, Rates
from runtime.core.values.limits import MAX_INTEGER

_SAMPLE = 100_000  # tokens, for models that charge more for long conversations
_LISTED_AS = {ProviderKind.GEMINI: "google", ProviderKind.BEDROCK: "aws"}
CHARACTERS = 4  # of a token, on average; those beyond ASCII count as their bytes
OVERHEAD = 50  # tokens that a provider adds to every conversation, on average
PART_OVERHEAD = 4  # tokens that it adds to each part
SPREAD = 4  # how far a count may be from its estimate, as a factor
MAX_REPLY_TOKENS = 131_072  # tokens

_CACHED = ("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
_ESTIMATED = "estimated_tokens"


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


def estimate_request(
    conversation: Sequence[ModelMessage], tools: Iterable[ToolDefinition] = ()
) -> int:
    """Estimate the tokens of a request."""
    texts = [f"{tool.name}{tool.description}{tool.parameters_json_schema}" for tool in tools]
    texts += [
        message.instructions or ""
        for message in conversation[-1:]
        if isinstance(message, ModelRequest)
    ]
    parts = sum(len(message.parts) for message in conversation)
    return OVERHEAD + PART_OVERHEAD * parts + estimate_tokens(conversation) + _tokens(texts)


def estimate_tokens(messages: Iterable[ModelMessage]) -> int:
    """Estimate the tokens of all texts, thoughts and calls in these messages."""
    return _tokens(
        f"{part.tool_name}{part.args or ''}"
        if isinstance(part, ToolCallPart)
        else str(getattr(part, "content", ""))
        for message in messages
        for part in message.parts
    )


def complete_usage(reply: ModelResponse, request: int, *, is_partial: bool = False) -> RequestUsage:
    """Return the usage of a reply: estimates where the provider's count is missing or implausible.

    `request` is the estimate of its request. Of a partial reply the provider may have counted only the beginning.
    """
    usage, refusal = reply.usage, (reply.provider_details or {}).get("refusal")
    estimate = estimate_tokens([reply]) + _tokens([str(refusal or "")])
    sent, output = usage.input_tokens, usage.output_tokens
    cached = {name: getattr(usage, name) for name in _CACHED}
    details = {name: n for name, n in usage.details.items() if _is_count(n, MAX_INTEGER)}
    estimated = 0
    if not (
        _is_count(sent, SPREAD * request, request)
        and all(_is_count(count, sent) for count in cached.values())
        and usage.cache_read_tokens + usage.cache_write_tokens <= sent
    ):
        sent, cached, estimated = request, {}, request
    max_count = max(SPREAD * estimate, MAX_REPLY_TOKENS)
    if not _is_count(output, max_count, estimate) or (is_partial and output < estimate):
        output, estimated = estimate, estimated + estimate
    if estimated:
        details[_ESTIMATED] = estimated
    return RequestUsage(input_tokens=sent, output_tokens=output, details=details, **cached)


def counts_of(usage: RequestUsage) -> dict[str, int]:
    """Return a usage as an event has it. Of its tokens, `estimated_tokens` are no counts of the provider."""
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    estimated = usage.details.get(_ESTIMATED, 0)
    return {**counts, _ESTIMATED: estimated} if estimated else counts


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


def _is_count(value: object, max_count: int, estimate: int = 0) -> bool:
    return type(value) is int and estimate <= SPREAD * value and 0 <= value <= max_count


def _tokens(texts: Iterable[str]) -> int:
    return -(-sum(len(text.encode(errors="surrogatepass")) for text in texts) // CHARACTERS)
