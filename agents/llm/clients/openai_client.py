"""OpenAI's client without its conversion of requests, which also accepts an answer in one piece to a stream request.

The original client tries each message and tool against every possible type, to rename fields that have another name
on the wire. Ours have no such field, and the conversion took a third of the processor time of a call.
"""

import json
from functools import cached_property
from typing import Any

from httpx2 import Response
from openai import AsyncOpenAI, AsyncStream, NotGiven, Omit, omit
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.types.chat import ChatCompletionChunk

from agents.llm.failures import NotTheApi


class Client(AsyncOpenAI):
    """A client whose chat completions skip the conversion."""

    @cached_property
    def chat(self) -> AsyncChat:
        """Return the chat resource without the conversion."""
        return _Chat(self)


class PlainClient(Client):
    """A client for servers that refuse to stream."""


class _Chat(AsyncChat):
    def __init__(self, client: AsyncOpenAI) -> None:
        super().__init__(client)
        self.client = client

    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self.client)


class _Completions(AsyncCompletions):
    def __init__(self, client: AsyncOpenAI) -> None:
        super().__init__(client)
        self.client = client

    async def create(
        self,
        *,
        messages: Any,
        tools: Any = omit,
        extra_body: Any = None,
        stream_options: Any = omit,
        **settings: Any,
    ) -> Any:
        """Send a request like the client's own `create`. Fields of the extra body replace the other ones."""
        body = {"messages": messages, "tools": tools}
        given = {name: one for name, one in body.items() if not isinstance(one, Omit | NotGiven)}
        if isinstance(self.client, PlainClient):
            stream_options = omit
            given["stream"] = False
        answer = await super().create(
            messages=(),
            extra_body=given | (extra_body or {}),
            stream_options=stream_options,
            **settings,
        )
        return await _streamed(answer, self.client) if isinstance(answer, AsyncStream) else answer


async def _streamed(
    answer: AsyncStream[ChatCompletionChunk], client: AsyncOpenAI
) -> AsyncStream[ChatCompletionChunk]:
    """Return the stream, or a stream of one chunk if the answer came in one piece. Raise NotTheApi for an HTML page."""
    response = answer.response
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/html":
        await answer.close()
        raise NotTheApi
    if kind != "application/json":
        return answer
    document = json.loads(await response.aread())
    chunk = json.dumps(_chunk(document)).encode()
    whole = Response(200, content=b"data: %b\n\ndata: [DONE]\n\n" % chunk, request=response.request)
    return AsyncStream(cast_to=ChatCompletionChunk, response=whole, client=client)


def _chunk(document: Any) -> Any:
    """Turn a completion into the one chunk of a stream. The client reads anything else as an error."""
    if not isinstance(document, dict) or "choices" not in document:
        return document
    choices = [
        {**choice, "delta": _delta(choice.get("message") or {})} for choice in document["choices"]
    ]
    return {**document, "object": "chat.completion.chunk", "choices": choices}


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    calls = enumerate(message.get("tool_calls") or ())
    numbered = [{**call, "index": index} for index, call in calls]
    return {**message, "tool_calls": numbered or None}
