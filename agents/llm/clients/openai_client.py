"""OpenAI's client without its conversion of requests (ADR 0026), and with answers mended for the libraries."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from httpx2 import AsyncByteStream, Response
from openai import AsyncOpenAI, AsyncStream
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

from agents.llm.failures import NotTheApi

_READ = re.compile(rb"data:\s*\S|\s*$")  # a line of a stream that has data, or ends an event


class Client(AsyncOpenAI):
    """A client whose chat completions skip the conversion, and whose streams are mended."""

    @cached_property
    def chat(self) -> AsyncChat:
        """Return the chat resource with completions of our own."""
        chat = AsyncChat(self)
        vars(chat)["completions"] = _Completions(self)  # a cached property
        return chat


class _Completions(AsyncCompletions):
    def __init__(self, client: AsyncOpenAI) -> None:
        super().__init__(client)
        self.client = client

    async def create(self, *, messages: Any, tools: Any = None, **settings: Any) -> Any:
        """Send a request like the client's own `create`. Fields of the extra body replace the other ones."""
        offered = {"tools": tools} if tools else {}
        fields = {"messages": messages, **offered, **(settings.pop("extra_body", None) or {})}
        if options := settings.get("stream_options"):
            options.pop("continuous_usage_stats", None)  # pydantic-ai's, refused by some
        answer: Any = await super().create(messages=(), extra_body=fields, **settings)
        if not isinstance(answer, AsyncStream):
            return answer
        return _ChunkStream(await _read_events(answer.response), self.client)


async def _read_events(answer: Response) -> Response:
    """Return the events with data; of an answer in one piece, one event. Raise NotTheApi for a page."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("text/html", "application/json"):
        lines = _Lines(answer)
        return Response(200, stream=lines, request=answer.request, extensions=answer.extensions)
    text = await answer.aread()
    if kind == "text/html":
        raise NotTheApi
    document = json.loads(text)
    for choice in document.get("choices") or ():
        choice["delta"] = choice.get("message") or {}
        for number, call in enumerate(choice["delta"].get("tool_calls") or ()):
            call["index"] = number
    return Response(200, content=f"data: {json.dumps(document)}\n\n", request=answer.request)


@dataclass
class _Lines(AsyncByteStream):
    """The lines of an answer that have data, because the client reads each event as a chunk."""

    answer: Response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unfinished = b""
        async for piece in self.answer.aiter_bytes():
            *lines, unfinished = (unfinished + piece).split(b"\n")
            yield b"".join(line + b"\n" for line in lines if _READ.match(line))
        yield unfinished

    async def aclose(self) -> None:
        await self.answer.aclose()


class _ChunkStream(AsyncStream[ChatCompletionChunk]):
    def __init__(self, response: Response, client: AsyncOpenAI) -> None:
        super().__init__(cast_to=ChatCompletionChunk, response=response, client=client)
        self.calls: dict[int, tuple[int, str, str]] = {}  # by the server's index: number, id, name
        self.count = self.tokens = 0

    async def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        async for chunk in super().__aiter__():
            tokens = getattr(chunk.usage, "completion_tokens", None)
            if isinstance(tokens, int):  # if it is sent again, it is all of it: the greatest counts
                chunk.usage = chunk.usage if tokens >= self.tokens else None
                self.tokens = max(self.tokens, tokens)
            for choice in chunk.choices or ():
                for call in getattr(choice.delta, "tool_calls", None) or ():
                    self.separate(call)
            yield chunk

    def separate(self, call: ChoiceDeltaToolCall) -> None:
        """Give each call an index of its own. Another name, or a name with another id, begins a call."""
        sent = (call.function.name if call.function else "") or ""
        number, call_id, name = self.calls.get(call.index, (-1, "", ""))
        is_same = not (sent and name) or (sent == name and (call.id or call_id) == call_id)
        if number < 0 or not is_same:
            number, call_id, name = self.count, "", ""
            self.count += 1
        elif call.function is not None and name:  # some servers repeat it in each chunk
            call.function.name = None
        self.calls[call.index] = (number, call_id or call.id or "", name or sent)
        call.index = number
