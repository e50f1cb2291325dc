"""Caches long conversations that this process has translated, so that a step translates only new messages.

A frame's messages are only added to. If the first ones are the same objects as before, or equal ones after the run
was loaded again, their translation is reused. Conversations of agents with secrets are not cached, because the
translation opens the secrets.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from uuid import UUID

from pydantic_ai.messages import ModelMessage

from agents.llm.messages import to_provider
from agents.sdk.spec import AgentSpec
from runtime.core.continuation import Call
from runtime.core.documents.blobs import begins

KEPT = 64  # conversations of one process
MIN_CACHED_MESSAGES = 4  # a shorter conversation is not worth caching


@dataclass(slots=True)
class _Begun:
    """The translated beginning of a conversation. Only the thread that took it out of `_known` adds to it."""

    agent: AgentSpec
    instructions: str
    messages: tuple[dict[str, Any], ...]
    calls: tuple[Call, ...]
    conversation: list[ModelMessage]

    def begins(self, messages: tuple[dict[str, Any], ...], calls: tuple[Call, ...]) -> bool:
        """Say whether a frame with these messages and calls was once translated into this conversation."""
        if begins(self.messages, messages):
            return True
        if self.messages != messages[: len(self.messages)]:
            return False
        return [*map(_FIELDS, self.calls)] == [*map(_FIELDS, calls[: len(self.calls)])]


_FIELDS = attrgetter("id", "tool", "args")  # of a call, which a stored reply leaves out
_lock = threading.Lock()
_known: "OrderedDict[tuple[UUID, str], _Begun]" = OrderedDict()


def conversation_of(
    agent: AgentSpec,
    run: UUID,
    frame: str,
    messages: tuple[dict[str, Any], ...],
    instructions: str = "",
    calls: tuple[Call, ...] = (),
) -> list[ModelMessage]:
    """Convert the messages of a frame, from the first one not cached. The caller may change the list."""
    if len(messages) < MIN_CACHED_MESSAGES or agent.keeps_secrets:
        return to_provider(agent, messages, [], instructions, calls)
    place = (run, frame)
    with _lock:
        known = _known.pop(place, None)
    told = known is not None and known.agent is agent and known.instructions == instructions
    begun = known.conversation if known and told and known.begins(messages, calls) else []
    conversation = to_provider(agent, messages, begun, instructions, calls)
    with _lock:
        _known[place] = _Begun(agent, instructions, messages, calls, conversation)
        while len(_known) > KEPT:
            _known.popitem(last=False)
    return conversation.copy()
