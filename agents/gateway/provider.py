"""Which model answers, as ABEYANCE_MODEL says: the agent's own script, or a provider's over the network.

One client per process: it keeps connections, and belongs to the one loop that calls run on. Clients are
imported when they are first needed, because importing one takes seconds. They never try again by
themselves, which is the engine's business, and never wait without end.
"""

import os
from functools import lru_cache

from django.conf import settings
from pydantic_ai.models import Model
from pydantic_ai.models.function import FunctionModel

from agents.spec import AgentSpec

SCRIPTED = "scripted"

# Reaching the provider; how long the whole call may take is said with each call.
CONNECT_SECONDS = 10.0


def name_of(agent: AgentSpec) -> str:
    """The model in words, for whoever reads what went wrong."""
    chosen: str = settings.ABEYANCE_MODEL
    return agent.model_name if chosen == SCRIPTED else chosen


def is_scripted() -> bool:
    return bool(settings.ABEYANCE_MODEL == SCRIPTED)


def model_for(agent: AgentSpec) -> Model:
    if is_scripted():
        return FunctionModel(agent.model, model_name=agent.model_name)
    provider, _, name = settings.ABEYANCE_MODEL.partition(":")
    if provider == "openai":
        return _openai(name, settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY)
    return _anthropic(name, settings.ANTHROPIC_API_KEY)


@lru_cache
def _openai(name: str, base_url: str, key: str) -> Model:
    from httpx2 import Timeout
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(
        api_key=key,
        base_url=base_url or None,
        max_retries=0,
        timeout=Timeout(60.0, connect=CONNECT_SECONDS),
    )
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))


@lru_cache
def _anthropic(name: str, key: str) -> Model:
    from anthropic import AsyncAnthropic
    from httpx2 import Timeout
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        api_key=key, max_retries=0, timeout=Timeout(60.0, connect=CONNECT_SECONDS)
    )
    return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))


def _forget() -> None:
    """A fork has no loop yet, and must not share sockets with its parent."""
    _openai.cache_clear()
    _anthropic.cache_clear()


os.register_at_fork(after_in_child=_forget)
