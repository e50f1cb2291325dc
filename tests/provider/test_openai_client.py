"""Our requests in OpenAI's protocol, compared with those of the client's own `create`."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

from agents.llm.messages import to_provider, tools_of
from agents.llm.openai_client import Client
from agents.llm.providers import CLIENTS, model_of
from agents.registry import Registry
from tests.support.frames import Frame
from tests.support.provider.server import KEY, Provider


def _ask(
    client: AsyncOpenAI,
    conversation: list[ModelMessage],
    tools: ModelRequestParameters,
    settings: OpenAIChatModelSettings,
) -> None:
    async def ask() -> None:
        model = OpenAIChatModel("loopback", provider=OpenAIProvider(openai_client=client))
        request = model_request_stream(
            model, conversation, model_request_parameters=tools, model_settings=settings
        )
        async with client, request as stream:
            async for _ in stream:
                pass

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("offers", "asked"),
    [
        (True, OpenAIChatModelSettings()),
        (False, OpenAIChatModelSettings()),
        (True, OpenAIChatModelSettings(temperature=0.5, extra_body={"seed": 7, "mine": [1]})),
    ],
    ids=["tools", "no tools", "settings and a body of their own"],
)
def test_a_request_is_the_one_that_the_client_itself_would_send(
    hr: Registry, frame: Frame, provider: Provider, offers: bool, asked: OpenAIChatModelSettings
) -> None:
    frame.ask()
    frame.settle(("denied", "not this one"))
    agent = hr.agents["account_agent"]
    conversation = to_provider(agent, tuple(frame.messages), calls=frame.calls)
    tools = tools_of(agent) if offers else ModelRequestParameters()
    for client in (AsyncOpenAI, Client):
        _ask(client(api_key=KEY, base_url=provider.url), conversation, tools, asked)
    *_, theirs, ours = provider.bodies
    assert ours == theirs
    assert [message["role"] for message in ours["messages"]][-3:] == ["user", "assistant", "tool"]
    assert bool(ours.get("tools")) is offers


def test_calls_are_shared_out_among_a_few_clients(provider: Provider) -> None:
    models: list[Any] = [model_of("openai:loopback") for _ in range(2 * CLIENTS)]
    assert len({id(model.client) for model in models}) == CLIENTS
    assert models[:CLIENTS] == models[CLIENTS:]
