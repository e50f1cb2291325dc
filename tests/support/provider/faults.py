"""The faults of a provider, with their replies, and its weather: which requests fail, the same for the same seed."""

import json
import random
from collections.abc import Callable
from enum import StrEnum
from typing import Any

Message = dict[str, Any]


class Fault(StrEnum):
    RATE_LIMIT = "rate_limit"  # 429 with Retry-After
    SERVER_ERROR = "server_error"  # 500
    CUT = "cut"  # the connection ends in the middle of the body
    SHORT = "short"  # the stream ends in the middle as if it were complete
    TRICKLE = "trickle"  # a word now and then, without end
    HALF_OPEN = "half_open"  # half of the stream, then silence on a connection that stays
    MALFORMED_JSON = "malformed_json"  # 200, and half a document
    UNKNOWN_TOOL = "unknown_tool"  # a call of a tool that was not offered
    DUPLICATE_CALLS = "duplicate_calls"  # every call twice, under the same id
    MALFORMED_ARGUMENTS = "malformed_arguments"  # arguments that end in the middle


def _unknown_tool(message: Message) -> Message:
    function = {"name": "delete_everything", "arguments": "{}"}
    call = {"id": "call_unknown", "type": "function", "function": function}
    return {**message, "content": None, "tool_calls": [call]}


def _duplicate_calls(message: Message) -> Message:
    return {**message, "tool_calls": [call for call in message["tool_calls"] for _ in range(2)]}


def _malformed_arguments(message: Message) -> Message:
    broken = json.loads(json.dumps(message["tool_calls"]))
    for call in broken:
        call["function"]["arguments"] = call["function"]["arguments"][:-3]
    return {**message, "tool_calls": broken}


# Those that only change the reply. They wait for a reply that has calls.
SPOILERS: dict[Fault, Callable[[Message], Message]] = {
    Fault.UNKNOWN_TOOL: _unknown_tool,
    Fault.DUPLICATE_CALLS: _duplicate_calls,
    Fault.MALFORMED_ARGUMENTS: _malformed_arguments,
}

TROUBLE = (Fault.RATE_LIMIT, Fault.SERVER_ERROR, Fault.CUT, Fault.SHORT)

Weather = Callable[[], Fault | None]  # the fault of the next request, or None


def storm(share: float, *, seed: int) -> Weather:
    """Fail so large a share of all requests."""
    chance = random.Random(seed)
    return lambda: chance.choice(TROUBLE) if chance.random() < share else None
