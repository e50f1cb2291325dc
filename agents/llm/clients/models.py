"""Clients of providers' models, one for each kind of provider.

They do not retry, because the engine does, and every call has a timeout. Each kind imports only the libraries that it
needs, because importing them takes a second.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from httpx2 import Response, Timeout
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models import Model

from agents.endpoints import Endpoint, ProviderKind
from agents.llm.failures import UnusableReply
from runtime.network import load_authorities

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from pydantic_ai.profiles import ModelProfile
    from pydantic_ai.providers import Provider

# The settings that some servers refuse, by their names in a request, and the profile of a model without each.
WITHOUT: dict[str, dict[str, bool]] = {
    "tool_choice": {"supports_forced_tool_choice": False},
    "strict": {"openai_supports_strict_tool_definition": False},
    "max_tokens": {"openai_chat_supports_max_completion_tokens": True},
    "max_completion_tokens": {"openai_chat_supports_max_completion_tokens": False},
}
_LIMITS = {"max_tokens", "max_completion_tokens"}
MAX_ANSWER_BYTES = 64 * 1024 * 1024  # of the longest reply, with each token in an event of its own
_REFUSED = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}


def make_client(endpoint: Endpoint, model: str, refused: frozenset[str]) -> Model:
    """Create a client of this provider's model, which leaves out the `refused` settings."""
    profile = {name: value for setting in refused for name, value in WITHOUT[setting].items()}
    make = (
        _make_anthropic_client if endpoint.kind is ProviderKind.ANTHROPIC else _make_openai_client
    )
    return make(endpoint, model, profile)


def find_refused(exc: ModelAPIError, model: Model, refused: frozenset[str]) -> str | None:
    """Return the setting that the server refused by its name, if it can be left out and was not yet."""
    if not isinstance(exc, ModelHTTPError) or exc.status_code not in _REFUSED:
        return None
    profile: Mapping[str, Any] = model.profile
    is_new = profile.get("openai_chat_supports_max_completion_tokens", True)
    sent = {"tool_choice", "strict", "max_completion_tokens" if is_new else "max_tokens"}
    if refused & _LIMITS:  # this server knows neither name of the limit
        sent -= _LIMITS
    words = set(re.findall(r"\w+", json.dumps(exc.body, default=str)))
    return min((sent - refused) & words, default=None)


def _make_openai_client(endpoint: Endpoint, model: str, profile: dict[str, Any]) -> Model:
    from openai import DefaultAsyncHttpxClient
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
    from pydantic_ai.providers import infer_provider_class
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    from agents.llm.clients.openai_client import Client

    # The client requires a key, and a self-hosted server may have none.
    client = Client(
        api_key=endpoint.key or "none",
        **_build_connection_options(endpoint, DefaultAsyncHttpxClient),
    )
    # Features that the model layer assumes and the provider does not support.
    habits: dict[str, Any] = {}
    is_openai = endpoint.kind is ProviderKind.OPENAI and not endpoint.is_compatible
    if not is_openai and endpoint.kind not in (ProviderKind.AZURE, ProviderKind.BEDROCK):
        habits |= WITHOUT["max_completion_tokens"]
        habits |= WITHOUT["strict"] if endpoint.kind is ProviderKind.GEMINI else {}
    # The class by which the model layer knows this provider's models.
    provider: Provider[AsyncOpenAI]
    if endpoint.is_compatible or endpoint.kind in (ProviderKind.BEDROCK, ProviderKind.GEMINI):
        provider = OpenAICompatibleProvider(endpoint.name, openai_client=client)
    else:
        make: Callable[..., Provider[AsyncOpenAI]] = infer_provider_class(endpoint.kind)
        provider = make(openai_client=client)
    return OpenAIChatModel(
        model,
        provider=provider,
        profile=cast("ModelProfile", habits | profile),
        settings=OpenAIChatModelSettings(openai_continuous_usage_stats=True),
    )


def _make_anthropic_client(endpoint: Endpoint, model: str, profile: dict[str, Any]) -> Model:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    connection = _build_connection_options(endpoint, DefaultAsyncHttpxClient)
    client = AsyncAnthropic(api_key=endpoint.key, **connection)
    provider = AnthropicProvider(anthropic_client=client)
    return AnthropicModel(model, provider=provider, profile=cast("ModelProfile", profile))


def _build_connection_options(
    endpoint: Endpoint, make_http_client: Callable[..., Any]
) -> dict[str, Any]:
    return {
        "base_url": endpoint.address,
        "http_client": make_http_client(
            verify=load_authorities(),
            follow_redirects=False,  # another address would get the conversation and the key
            event_hooks={"response": [limit_answer]},
        ),
        "max_retries": 0,
        "timeout": Timeout(60.0, connect=10.0),  # each call has its own for the whole reply
    }


async def limit_answer(response: Response) -> None:
    """Have the reading of an answer fail beyond the limit, which a small compressed one can exceed."""
    read = response.aiter_bytes

    async def aiter_bytes(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        size = 0
        async for piece in read(chunk_size):
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise UnusableReply(f"sent more than {MAX_ANSWER_BYTES} bytes")
            yield piece

    vars(response)["aiter_bytes"] = aiter_bytes
