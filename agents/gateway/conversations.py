"""Long conversations of this process, translated once: each reply adds to one, and the rest is as it was.

A frame's messages are only ever added to, so what was made of them before is known by their being the very same
objects. Whoever loads the run anew has others, and translates them all. Messages of agents with secrets are not
kept, because they are opened on the way.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic_ai.messages import ModelMessage

from agents.gateway.messages import to_provider
from agents.spec import AgentSpec
from runtime.core.contents import begins
from runtime.core.continuation import Call

KEPT = 64  # conversations of one process
LONG = 4  # messages: a shorter one is translated in no time


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    agent: AgentSpec
    messages: tuple[dict[str, Any], ...]
    conversation: tuple[ModelMessage, ...]


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
    """Convert the messages of a frame with `to_provider`. A frame's instructions change only with its agent."""
    place = (run, frame)
    with _lock:
        known = _known.get(place)
    goes_on = known is not None and known.agent is agent and begins(known.messages, messages)
    begun_before = known.conversation if known and goes_on else ()
    conversation = to_provider(agent, messages, begun_before, instructions, calls)
    if len(messages) >= LONG and not agent.keeps_secrets:
        begun = _Begun(agent=agent, messages=messages, conversation=tuple(conversation))
        with _lock:
            _known[place] = begun
            _known.move_to_end(place)
            while len(_known) > KEPT:
                _known.popitem(last=False)
    return conversation
