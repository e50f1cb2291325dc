"""Makes a conversation fit every provider, also one that did not write its replies.

Providers answer 400 to names and ids of calls with other characters, to an id that two calls have, and to blank texts
and results. The journal keeps the replies as they came.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace
from operator import is_
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)

from agents.sdk.scripts.conversation_texts import NOTHING_RETURNED

_MAX_NAME = 64  # characters of a tool's name that every provider takes
_MAX_ID = 40  # characters of the id of a call
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")


def fit(conversation: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation with names, ids, texts and results that every provider takes."""
    used: dict[str, int] = {}  # ids of all calls so far, and how many began as each
    ids: defaultdict[str, deque[str]] = defaultdict(deque)  # of the last reply, by the provider's
    fitted: list[ModelMessage] = []
    message: Any
    for message in conversation:
        if isinstance(message, ModelResponse):
            ids.clear()
        parts = [_fit(part, used, ids) for part in message.parts if not _is_blank(part)]
        is_same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
        fitted.append(message if is_same else replace(message, parts=parts))
    return fitted


def _is_blank(part: Any) -> bool:
    return isinstance(part, TextPart) and not part.content.strip()


def _fit(part: Any, used: dict[str, int], ids: defaultdict[str, deque[str]]) -> Any:
    match part:
        case ToolCallPart():
            call_id = _new_id(part.tool_call_id, used)
            ids[part.tool_call_id].append(call_id)
            fields: dict[str, Any] = {"tool_call_id": call_id}
        case ToolReturnPart():
            waiting = ids[part.tool_call_id]
            fields = {"tool_call_id": waiting.popleft() if waiting else part.tool_call_id}
            if part.content is None or (isinstance(part.content, str) and not part.content.strip()):
                fields["content"] = NOTHING_RETURNED
        case _:
            return part
    fields["tool_name"] = _OTHER.sub("_", part.tool_name)[:_MAX_NAME] or "unnamed"
    changed = any(getattr(part, name) != value for name, value in fields.items())
    return replace(part, **fields) if changed else part


def _new_id(call_id: str, used: dict[str, int]) -> str:
    """Return an id like that of the provider which no other call has."""
    stem = fitting = _OTHER.sub("_", call_id)[:_MAX_ID] or "call"
    while fitting in used:
        used[stem] += 1
        fitting = f"{stem[: _MAX_ID - 6]}-{used[stem]}"
    used[fitting] = 1
    return fitting
