"""Clients of providers' models, one for each kind of provider.

They do not retry, because the engine does, and every call has a timeout. Each kind imports only the libraries that it
needs, because importing them takes a second.
"""

import ssl
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from pydantic_ai.models import Model

from agents.endpoints import Endpoint, Kind

if TYPE_CHECKING:
    from openai import AsyncAzureOpenAI, AsyncOpenAI
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers import Provider

# For connecting. Each call has its own timeout for the whole reply.
CONNECT_SECONDS = 10.0

# OpenAI's client requires a key, and a self-hosted server may have none.
NO_KEY = "none"


def client_of(endpoint: Endpoint, model: str) -> Model:
    """Create a client of this provider's model."""
    if endpoint.kind is Kind.ANTHROPIC:
        return _anthropic(endpoint, model)
    return _openai(endpoint, model)


def import_for(kind: Kind) -> None:
    """Import the libraries of this kind's clients, before the first run waits for it."""
    import_module(f"pydantic_ai.models.{'anthropic' if kind is Kind.ANTHROPIC else 'openai'}")


def _openai(endpoint: Endpoint, model: str) -> Model:
    from httpx2 import Timeout
    from openai import DefaultAsyncHttpxClient
    from pydantic_ai.models.openai import OpenAIChatModel

    from agents.llm.clients.openai_client import Client, PlainClient

    client = (Client if endpoint.streams else PlainClient)(
        api_key=endpoint.key or NO_KEY,
        base_url=endpoint.address,
        http_client=DefaultAsyncHttpxClient(verify=_authorities()),
        max_retries=0,
        timeout=Timeout(60.0, connect=CONNECT_SECONDS),
    )
    return OpenAIChatModel(model, provider=_provider(endpoint, client), profile=_habits(endpoint))


def _provider(endpoint: Endpoint, client: "AsyncOpenAI") -> "Provider[AsyncOpenAI]":
    """Choose the class by which the model layer knows this provider's models."""
    from pydantic_ai.providers.azure import AzureProvider
    from pydantic_ai.providers.ollama import OllamaProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
    from pydantic_ai.providers.vllm import VLLMProvider

    match endpoint.kind:
        case Kind.AZURE:
            # Its type names the client of an older interface; Azure's v1 works with OpenAI's own.
            return AzureProvider(openai_client=cast("AsyncAzureOpenAI", client))
        case Kind.OLLAMA:
            return OllamaProvider(openai_client=client)
        case Kind.VLLM:
            return VLLMProvider(openai_client=client)
        case Kind.OPENAI if not endpoint.is_compatible:
            return OpenAIProvider(openai_client=client)
        case _:
            return OpenAICompatibleProvider(endpoint.name, openai_client=client)


def _habits(endpoint: Endpoint) -> "OpenAIModelProfile | None":
    """Switch off features that the model layer assumes and the provider does not support."""
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    match endpoint.kind:
        case Kind.AZURE | Kind.BEDROCK:
            return None
        case Kind.OPENAI if not endpoint.is_compatible:
            return None
        case Kind.GEMINI:
            return OpenAIModelProfile(
                openai_chat_supports_max_completion_tokens=False,
                openai_supports_strict_tool_definition=False,
            )
        case _:
            return OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)


def _anthropic(endpoint: Endpoint, model: str) -> Model:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
    from httpx2 import Timeout
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    from agents.llm.clients.anthropic_client import PlainAnthropicModel

    client = AsyncAnthropic(
        api_key=endpoint.key,
        base_url=endpoint.address,
        http_client=DefaultAsyncHttpxClient(verify=_authorities()),
        max_retries=0,
        timeout=Timeout(60.0, connect=CONNECT_SECONDS),
    )
    kind = AnthropicModel if endpoint.streams else PlainAnthropicModel
    return kind(model, provider=AnthropicProvider(anthropic_client=client))


@cache
def _authorities() -> ssl.SSLContext:
    """Load the certificate authorities that all clients trust. Done once, because it takes 50 ms."""
    from httpx2 import create_ssl_context

    return create_ssl_context()
