"""Chat models of OpenAI's protocol. The libraries read the replies; here is what other servers do differently.

Requests do not go through the client's conversion, which tries each message and tool against every possible type: it
renames no field of ours, and holds all other calls up for 214 ms at a conversation of 1,000 messages.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from openai import AsyncOpenAI, AsyncStream, NotGiven, Omit, omit
from openai._streaming import ServerSentEvent, SSEDecoder
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDeltaToolCall
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.usage import RequestUsage

from agents.llm.failures import NotTheApi


class Client(AsyncOpenAI):
    """A client whose chat completions skip the conversion, and whose streams skip events without data."""

    @cached_property
    def chat(self) -> AsyncChat:
        """Return the chat resource without the conversion."""
        return _Chat(self)

    def _make_sse_decoder(self) -> SSEDecoder:
        return _Decoder()


class _Decoder(SSEDecoder):
    def decode(self, line: str) -> ServerSentEvent | None:
        event = super().decode(line)
        return event if event is not None and event.data.strip() else None


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Completions(AsyncCompletions):
    async def create(
        self, *, messages: Any, tools: Any = omit, extra_body: Any = None, **settings: Any
    ) -> Any:
        """Send a request like the client's own `create`. Fields of the extra body replace the other ones."""
        body = {"messages": messages, "tools": tools}
        fields = {n: value for n, value in body.items() if not isinstance(value, Omit | NotGiven)}
        return await super().create(messages=(), extra_body=fields | (extra_body or {}), **settings)


class ChatModel(OpenAIChatModel):
    """A chat model of a server that may also answer in one piece to a request for a stream."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _ChatStream

    async def _completions_create(self, *request: Any) -> Any:
        """Return the stream, or the whole reply of an answer in one piece. Raise NotTheApi for a page."""
        answer: Any = await super()._completions_create(*request)
        if not isinstance(answer, AsyncStream):
            return answer
        kind = answer.response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in ("text/html", "application/json"):
            return answer
        text = await answer.response.aread()
        if kind == "text/html":
            raise NotTheApi
        document = json.loads(text)
        if error := document.get("error"):
            raise ModelAPIError(self.model_name, "an error instead of a reply", body=error)
        return self._process_response(ChatCompletion.construct(**document))


@dataclass
class _ChatStream(OpenAIStreamedResponse):
    # The calls whose chunks arrive, by the server's index: place in the reply, id and name.
    _calls: dict[int, tuple[int, str, str]] = field(default_factory=dict, init=False)
    _count: int = field(default=0, init=False)

    def _map_tool_call_delta(self, choice: Choice) -> Iterable[ModelResponseStreamEvent]:
        for chunk in choice.delta.tool_calls or []:
            self._separate(chunk)
        return super()._map_tool_call_delta(choice)

    def _separate(self, chunk: ChoiceDeltaToolCall) -> None:
        """Give each call an index of its own: some servers give one to all calls, and repeat the name in each chunk.

        A chunk with another name, or with a name and another id, begins a call.
        """
        sent = (chunk.function.name if chunk.function else "") or ""
        place, call_id, name = self._calls.get(chunk.index, (-1, "", ""))
        is_same = not (sent and name) or (sent == name and (chunk.id or call_id) == call_id)
        if place < 0 or not is_same:
            place, call_id, name = self._count, "", ""
            self._count += 1
        elif chunk.function is not None and name:
            chunk.function.name = None
        self._calls[chunk.index] = (place, call_id or chunk.id or "", name or sent)
        chunk.index = place

    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        """Keep the greatest usage: servers that report it more than once report all of it each time."""
        if reported and usage.total_tokens >= self._usage.total_tokens:
            super()._add_usage(usage, reported=True, cumulative=True)
