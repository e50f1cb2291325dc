"""Selects the models that answer: the agent's script, the models it names, or those of SIGNOFF_MODEL.

Each model has a few clients per process, used in turn: they keep connections, and belong to the one event loop on
which calls run. A process remembers which models did not answer it, so that calls try the next one at once.

The price of a call comes from the list in the package genai-prices, without a request. A script costs nothing. If the
list does not contain a model, neither the model nor its replies have a price.

Tokens are those that the provider reports, or estimated where that is missing or implausible, and for scripts. A token
has 4 bytes of text on average, never less than one, and hardly ever more than 16. So a count is believed within a
quarter of the estimate and 4 times as much. The tokens of a reply may be up to the longest reply of any model, because
thoughts are paid for and need not be sent.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import ROUND_CEILING, Decimal
from functools import cache, lru_cache
from importlib import import_module
from itertools import cycle
from typing import Any

from django.conf import settings
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from agents import endpoints
from agents.endpoints import SCRIPTED, Endpoint, ProviderKind, parse_provider_name
from agents.errors import RegistryError
from agents.llm.clients.models import make_client
from agents.masked_output import REDACTED
from agents.registry import Registry
from agents.sdk.spec import AgentSpec
from runtime.core.values.budgets import MICROS, Rates
from runtime.core.values.limits import MAX_INTEGER
from runtime.core.values.texts import clean_text

# A client looks at each of its connections whenever a call begins or ends: hundreds of them would take longer
# than the call.
CLIENTS = 8

REMEMBERED = 60.0  # seconds for which a model counts as out of order

_SAMPLE = 100_000  # tokens, for models that charge more for long conversations
_LISTED_AS = {ProviderKind.GEMINI: "google", ProviderKind.BEDROCK: "aws"}
CHARACTERS = 4  # of a token, on average; those beyond ASCII count as their bytes
OVERHEAD = 50  # tokens that a provider adds to every conversation, on average
PART_OVERHEAD = 4  # tokens that it adds to each part
SPREAD = 4  # how far a count may be from its estimate, as a factor
MAX_REPLY_TOKENS = 131_072  # tokens

_CACHED = ("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
_ESTIMATED = "estimated_tokens"


log = logging.getLogger(__name__)

_SCRIPTS = Rates(input=0, output=0)
_refused: dict[str, frozenset[str]] = {}
_making = threading.Lock()
_turns = cycle(range(CLIENTS))


def is_scripted(agent: AgentSpec) -> bool:
    """Say whether the agent's script answers: it has one, and is code or SIGNOFF_MODEL is `scripted`."""
    return agent.model is not None and (agent.is_code or settings.SIGNOFF_MODEL == SCRIPTED)


def list_models(agent: AgentSpec) -> tuple[str, ...]:
    """List the agent's models in the order in which they are called.

    Empty if neither it nor the installation names one.
    """
    if is_scripted(agent):
        return (agent.model_name,)
    names = settings.SIGNOFF_MODEL
    return agent.models or (() if names == SCRIPTED else tuple(map(str.strip, names.split(","))))


class Outages:
    """The models out of order: their attempts were used up, and the engine called the next one.

    After `REMEMBERED` seconds one call tries a model again. A reply ends the outage. A failure extends it by the same
    time, and the call tries the next model. `clock` must be monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def begin(self, model: str) -> None:
        """Record that the attempts at this model are used up. A known outage is not extended."""
        with self._lock:
            self._until.setdefault(model, self._clock() + REMEMBERED)

    def end(self, model: str) -> None:
        """Record that this model replied."""
        with self._lock:
            self._until.pop(model, None)

    def choose(self, models: Sequence[str]) -> str:
        """Choose the first model that works or may be tried again; the first of all if none does."""
        with self._lock:
            now = self._clock()
            for model in models:
                until = self._until.get(model)
                if until is None:
                    return model
                if until <= now:
                    self._until[model] = now + REMEMBERED  # for every call but this one
                    return model
        return models[0]


def choose_models(agent: AgentSpec, next_model: str, outages: Outages) -> tuple[str, str]:
    """Return the model to ask, and its fallback or an empty text.

    `next_model` is the one that the engine names once the attempts at the previous one are used up. It is ignored if
    it is no longer configured.
    """
    models = list_models(agent)
    if next_model not in models:
        next_model = outages.choose(models)
    elif next_model != models[0]:
        outages.begin(models[models.index(next_model) - 1])
    later = models[models.index(next_model) + 1 :]
    return next_model, later[0] if later else ""


def take_next_client(name: str, refused: frozenset[str] = frozenset()) -> Model:
    """Return the next client in turn of that model, which leaves out the `refused` settings.

    Raise LookupError for an unknown provider.
    """
    endpoint = read_endpoints()[parse_provider_name(name)]
    with _making:  # or two threads would each make a client, and one would never be closed
        return _make_cached_client(endpoint, name.partition(":")[2], refused, next(_turns))


def can_stream_replies(name: str) -> bool:
    """Say whether the provider of that model streams replies."""
    return read_endpoints()[parse_provider_name(name)].streams


def list_refused_settings(name: str) -> frozenset[str]:
    """Return the settings that the server of that model refused, as far as this process knows."""
    return _refused.get(name, frozenset())


def remember_refused(name: str, refused: frozenset[str]) -> None:
    """Leave out these settings of each request to that model, whose server replied without them."""
    if refused != list_refused_settings(name):
        log.warning("Model %s: its server refuses %s", name, ", ".join(sorted(refused)))
        _refused[name] = refused


def read_endpoints() -> dict[str, Endpoint]:
    """Return the providers of this installation, by name."""
    return endpoints.list_providers(
        openai=(settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY),
        anthropic=(settings.ANTHROPIC_BASE_URL, settings.ANTHROPIC_API_KEY),
        configured=settings.SIGNOFF_PROVIDERS,
    )


def without_keys(text: str) -> str:
    """Replace every provider's key in a text, and shorten it to the length of an error."""
    for key in (endpoint.key for endpoint in read_endpoints().values() if endpoint.key):
        text = text.replace(key, REDACTED)
    return clean_text(text)


def list_lacking_settings(registry: Registry) -> Iterator[str]:
    """List the settings that agents' models lack, each with agent, field, model and variable."""
    endpoints_by_name = read_endpoints()
    for agent in registry.agents.values():
        if not list_models(agent):
            yield (
                f"agent {agent.name}: model: it has no script, names no model,"
                " and SIGNOFF_MODEL is scripted: set one of them"
            )
        for model in agent.models if not is_scripted(agent) else ():
            if (lack := endpoints.find_missing_variable(model, endpoints_by_name)) is not None:
                yield f"agent {agent.name}: models: {model}: {lack}"


def require_models(registry: Registry) -> None:
    """Raise RegistryError if an agent has no model that can be called."""
    for lack in list_lacking_settings(registry):
        raise RegistryError(lack)


def import_clients(registry: Registry) -> None:
    """Import the clients of all models in use, which takes a second, before the first run waits for it."""
    agents = [agent for agent in registry.agents.values() if not is_scripted(agent)]
    endpoints_by_name = read_endpoints()
    for name in {parse_provider_name(model) for agent in agents for model in list_models(agent)}:
        library = (
            "anthropic" if endpoints_by_name[name].kind is ProviderKind.ANTHROPIC else "openai"
        )
        import_module(f"pydantic_ai.models.{library}")


def find_rates(agent: AgentSpec) -> Rates | None:
    """Return the price of the agent's model, of several the highest. None if one has no known price."""
    if is_scripted(agent):
        return _SCRIPTS
    return _find_highest_rates(list_models(agent))


def compute_cost(response: ModelResponse) -> int | None:
    """Return the cost of a provider's reply in micro-units of US dollars, rounded up; None if unknown."""
    if response.usage.unmeasured_requests or response.model_name is None:
        return None
    provider_name = _find_listed_name(response.provider_name or "")
    price = _find_price(provider_name, response.model_name, response.usage)
    return None if price is None else _round_to_micros(price)


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
    return (
        OVERHEAD
        + PART_OVERHEAD * parts
        + estimate_tokens(conversation)
        + _estimate_text_tokens(texts)
    )


def estimate_tokens(messages: Iterable[ModelMessage]) -> int:
    """Estimate the tokens of all texts, thoughts and calls in these messages."""
    return _estimate_text_tokens(
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
    estimate = estimate_tokens([reply]) + _estimate_text_tokens([str(refusal or "")])
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


def build_usage_counts(usage: RequestUsage) -> dict[str, int]:
    """Return a usage as an event has it. Of its tokens, `estimated_tokens` are no counts of the provider."""
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    estimated = usage.details.get(_ESTIMATED, 0)
    return {**counts, _ESTIMATED: estimated} if estimated else counts


@lru_cache
def _find_highest_rates(models: tuple[str, ...]) -> Rates | None:
    sent, replied = (
        _find_highest_price(models, input_tokens=_SAMPLE),
        _find_highest_price(models, output_tokens=_SAMPLE),
    )
    return None if sent is None or replied is None else Rates(input=sent, output=replied)


def _find_highest_price(models: tuple[str, ...], **sample: int) -> int | None:
    """Return the highest price of a million of such tokens, None if one of the models has no price."""
    from genai_prices import Usage

    names = [
        (_find_listed_name(parse_provider_name(name)), name.partition(":")[2]) for name in models
    ]
    prices = [price for name in names if (price := _find_price(*name, Usage(**sample))) is not None]
    return (
        _round_to_micros(max(prices) * (1_000_000 // _SAMPLE))
        if len(prices) == len(names)
        else None
    )


def _find_listed_name(provider_name: str) -> str:
    """Return a provider's name in the price list. A server that only speaks OpenAI's protocol keeps its own name."""
    endpoint = read_endpoints().get(provider_name)
    if endpoint is None or endpoint.is_compatible:
        return provider_name
    return _LISTED_AS.get(endpoint.kind, endpoint.kind)


def _find_price(provider_name: str, model: str, usage: Any) -> Decimal | None:
    from genai_prices import calc_price

    try:
        return calc_price(usage, model, provider_id=provider_name).total_price
    except (LookupError, ValueError):
        return None


def _round_to_micros(price: Decimal) -> int:
    return int((price * MICROS).to_integral_value(rounding=ROUND_CEILING))


def _is_count(value: object, max_count: int, estimate: int = 0) -> bool:
    return type(value) is int and estimate <= SPREAD * value and 0 <= value <= max_count


def _estimate_text_tokens(texts: Iterable[str]) -> int:
    return -(-sum(len(text.encode(errors="surrogatepass")) for text in texts) // CHARACTERS)


@cache
def _make_cached_client(
    endpoint: Endpoint, model: str, refused: frozenset[str], _turn: int
) -> Model:
    return make_client(endpoint, model, refused)


def _reset() -> None:
    """Forget clients after a fork: it must not share the parent's sockets, and the lock may be held."""
    global _making
    _making = threading.Lock()
    _make_cached_client.cache_clear()


os.register_at_fork(after_in_child=_reset)
