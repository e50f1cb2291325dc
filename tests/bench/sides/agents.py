"""Agents for measuring, whose tools do nothing: those of the `engine` measure, and some that take steps of any size.

A scripted model stands for the provider, whose work is not measured: it reads only the first message, the number of
messages and the results it needs, and reports the number of tokens itself.
"""

import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from agents.sdk import tool
from tests.bench.sides import workload
from tests.support.specs import spec_of

TOKENS = RequestUsage(input_tokens=1000, output_tokens=100)

# The workload of both sides


class Newcomer(BaseModel):
    full_name: str
    email: str
    username: str
    department: str
    manager: str
    starts_on: str
    security_level: int


class Steps(BaseModel):
    """How many steps to take before the gate."""

    steps: int


def plays(script: workload.Script) -> Callable[[list[ModelMessage], AgentInfo], ModelResponse]:
    """The model that replies what a script of both sides says."""

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        def content(number: int) -> Any:
            part = messages[number].parts[0]
            assert isinstance(part, ToolReturnPart | UserPromptPart)
            return part.content

        results = len(messages) // 2
        reply = script(json.loads(content(0)), results, lambda number: content(2 * number + 2))
        part = (
            TextPart(reply)
            if isinstance(reply, str)
            else ToolCallPart(reply.tool, reply.args, tool_call_id=f"call-{results}")
        )
        return ModelResponse(parts=[part], usage=TOKENS)

    return model


create_account = tool(effect="idempotent")(workload.create_account)
set_privileges = tool(
    effect="idempotent",
    approval=True,
    risk="high",
    sentence="Give {account_id} security level {security_level}",
)(workload.set_privileges)
send_welcome_mail = tool(effect="idempotent")(workload.send_welcome_mail)
note = tool(effect="idempotent")(workload.note)
gate = tool(effect="idempotent", approval=True)(workload.gate)

onboard = spec_of(
    "onboard",
    input=Newcomer,
    model=plays(workload.onboard),
    tools=[create_account, set_privileges, send_welcome_mail],
)
account = spec_of(
    "account", input=Newcomer, model=plays(workload.account), tools=[create_account, set_privileges]
)
delegate = spec_of("delegate", input=Newcomer, model=plays(workload.delegate), subagents=[account])
walk = spec_of("walk", input=Steps, model=plays(workload.walk), tools=[note, gate])

# Steps of any size


class Walk(BaseModel):
    """Turns of one call each, and the bytes each is given and gives back."""

    turns: int
    given: int
    got: int


@tool(effect="read")
def step(text: str, got: int) -> str:
    """Give back so many bytes."""
    return "x" * got


walker = spec_of("walker", input=Walk, model=plays(workload.steps), tools=[step])
