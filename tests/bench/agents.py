"""Agents for measuring: one that only takes steps, of a given number and size.

Who plays their model stands for a provider, whose work is not what is measured: it looks at nothing but the first
message and their number, and says itself how many tokens there were.
"""

import json

from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from agents.sdk import agent, tool

TOKENS = RequestUsage(input_tokens=1000, output_tokens=100)


class Walk(BaseModel):
    """Turns of one call each, and the bytes each is given and gives back; `gate` adds one behind a gate."""

    turns: int
    given: int
    got: int
    gate: bool = False


@tool(effect="read")
def step(text: str, got: int) -> str:
    """Give back so many bytes."""
    return "x" * got


@tool(effect="idempotent", approval=True)
def gated(text: str, got: int) -> str:
    """The same, behind a gate."""
    return "x" * got


def walk(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Plays walker."""
    return _next(messages, "step")


def climb(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Plays climber."""
    return _next(messages, "gated")


walker = agent(
    name="walker",
    description="Takes steps.",
    instructions="Take as many steps as you are told.",
    input=Walk,
    model=walk,
    tools=[step, gated],
)

climber = agent(
    name="climber",
    description="Takes steps behind gates.",
    instructions="Take as many steps as you are told.",
    input=Walk,
    model=climb,
    tools=[gated],
)


def _next(messages: list[ModelMessage], tool_name: str) -> ModelResponse:
    given = messages[0].parts[0]
    assert isinstance(given, UserPromptPart)
    wanted = json.loads(str(given.content))
    gate = wanted.get("gate", False)
    left = wanted["turns"] + gate - len(messages) // 2  # each turn is a reply and its result
    if left == 0:
        return ModelResponse(parts=[TextPart("Done.")], usage=TOKENS)
    name = "gated" if gate and left == 1 else tool_name
    args = {"text": "x" * wanted["given"], "got": wanted["got"]}
    call = ToolCallPart(name, args, tool_call_id=f"call-{len(messages)}")
    return ModelResponse(parts=[call], usage=TOKENS)
