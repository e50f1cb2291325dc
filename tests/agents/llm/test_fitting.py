"""The conversation as every provider takes it. What goes out is tested in tests/provider/test_odd_replies.py."""

import sys
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart
from pydantic_ai.messages import ToolReturnPart as Result

from agents.llm.messages import fit


def _count_lines(calls: int) -> int:
    """Count the executed lines for a conversation of so many calls, which a provider gave one id."""
    conversation: list[ModelMessage] = []
    for _ in range(calls):
        conversation.append(ModelResponse(parts=[ToolCallPart("ping", {}, "call_0")]))
        conversation.append(ModelRequest(parts=[Result("ping", "open", "call_0")]))
    lines, tracer = 0, sys.gettrace()

    def count(_frame: Any, event: str, _value: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        fit(conversation)
    finally:
        sys.settrace(tracer)
    return lines


def test_equal_ids_cost_no_more_in_a_long_conversation() -> None:
    """All calls of a process share the thread that does this."""
    assert _count_lines(400) <= 2.1 * _count_lines(200)
