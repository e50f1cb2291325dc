"""OpenAI's client, but requests go as they are given.

The client's own create takes every message through every type that a message may have, to rename what needs other
names on the wire. Nothing here does, and it took a third of the processor time of a call.
"""

from functools import cached_property
from typing import Any

from openai import AsyncOpenAI, omit
from openai.resources.chat import AsyncChat, AsyncCompletions


class Client(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Completions(AsyncCompletions):
    async def create(
        self, *, messages: Any, tools: Any = omit, extra_body: Any = None, **settings: Any
    ) -> Any:
        body = {"messages": messages} | ({} if tools is omit else {"tools": tools})
        return await super().create(messages=(), extra_body=body | (extra_body or {}), **settings)
