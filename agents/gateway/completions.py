"""OpenAI's client, whose requests go out as they are given to it.

By itself it takes each message and tool through every type it could be, to rename fields that have another name on
the wire. No field of theirs has, and it took a third of the processor time of a call.
"""

from functools import cached_property
from typing import Any

from openai import AsyncOpenAI, NotGiven, Omit, omit
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
        """As the client's own. What stands in the extra body takes the place of what stands beside it."""
        body = {"messages": messages, "tools": tools}
        given = {name: one for name, one in body.items() if not isinstance(one, Omit | NotGiven)}
        return await super().create(messages=(), extra_body=given | (extra_body or {}), **settings)
