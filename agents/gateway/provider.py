"""Which models answer, as ABEYANCE_MODEL and the agent say: its own script, or providers' over the network.

Of a provider there are a few clients per process, asked in turn: they keep connections, and belong to the one loop
that calls run on. Only the clients of providers that are asked are imported, because importing one takes a second.
They never try again by themselves, which is the engine's business, and never wait without end.
"""

import os
import ssl
import threading
from functools import cache
from importlib import import_module
from itertools import cycle

from django.conf import settings
from pydantic_ai.models import Model

from agents.errors import RegistryError
from agents.registry import Registry
from agents.spec import AgentSpec

SCRIPTED = "scripted"

# Reaching the provider; how long the whole call may take is said with each call.
CONNECT_SECONDS = 10.0

# A client looks at each of its connections whenever a call begins or ends: hundreds of them would take longer
# than the call.
CLIENTS = 8

_making = threading.Lock()
_turns = cycle(range(CLIENTS))


def is_scripted() -> bool:
    return bool(settings.ABEYANCE_MODEL == SCRIPTED)


def models_of(agent: AgentSpec) -> tuple[str, ...]:
    """The names of the agent's models, in the order in which they are asked."""
    if is_scripted():
        return (agent.model_name,)
    return agent.models or tuple(one.strip() for one in settings.ABEYANCE_MODEL.split(","))


def model_of(name: str) -> Model:
    """A client of the provider's model of that name, the next in turn."""
    provider, _, model = name.partition(":")
    with _making:  # or two threads would each make a client, and one of them nobody closes
        turn = next(_turns)
        if provider == "openai":
            return _openai(model, settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY, turn)
        return _anthropic(model, settings.ANTHROPIC_API_KEY, turn)


def require_keys(registry: Registry) -> None:
    """Raise RegistryError if an agent names models of a provider whose key nobody has set."""
    keys = {
        "openai": ("OPENAI_API_KEY", settings.OPENAI_API_KEY),
        "anthropic": ("ANTHROPIC_API_KEY", settings.ANTHROPIC_API_KEY),
    }
    for agent in () if is_scripted() else registry.agents.values():
        for model in agent.models:
            variable, key = keys[model.partition(":")[0]]
            if not key:
                raise RegistryError(f"{variable} must be set: {agent.name} asks {model}")


def import_clients(registry: Registry) -> None:
    """What takes a second, before the first run waits for it."""
    names = [name for agent in registry.agents.values() for name in models_of(agent)]
    for provider in () if is_scripted() else {name.partition(":")[0] for name in names}:
        import_module(f"pydantic_ai.models.{provider}")


@cache
def _openai(name: str, base_url: str, key: str, _turn: int) -> Model:
    from httpx2 import Timeout
    from openai import DefaultAsyncHttpxClient
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from agents.gateway.completions import Client

    client = Client(
        api_key=key,
        base_url=base_url or None,
        http_client=DefaultAsyncHttpxClient(verify=_authorities()),
        max_retries=0,
        timeout=Timeout(60.0, connect=CONNECT_SECONDS),
    )
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))


@cache
def _anthropic(name: str, key: str, _turn: int) -> Model:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
    from httpx2 import Timeout
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        api_key=key,
        http_client=DefaultAsyncHttpxClient(verify=_authorities()),
        max_retries=0,
        timeout=Timeout(60.0, connect=CONNECT_SECONDS),
    )
    return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))


@cache
def _authorities() -> ssl.SSLContext:
    """Whom all clients trust. Read once: it takes 50 ms."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


def _forget() -> None:
    """A fork has no loop yet, must not share sockets with its parent, and may have copied a lock that is held."""
    global _making
    _making = threading.Lock()
    _openai.cache_clear()
    _anthropic.cache_clear()


os.register_at_fork(after_in_child=_forget)
