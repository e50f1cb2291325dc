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

from agents.sdk import Compaction, tool
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

# A run that goes on for long


class Marathon(BaseModel):
    """Waits at so many gates in a row after the turns `first` and `last`, and takes small steps between."""

    first: int
    last: int
    gates: int


@tool(effect="read")
def stride(number: int) -> int:
    """Take a step, and return its number."""
    return number


@tool(effect="read", approval=True)
def halt(number: int) -> int:
    """Wait for a person, and return the number of the step."""
    return number


def march(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Call the next step by the number that the last one returned: earlier messages may be summed up."""
    given = messages[0].parts[0]
    assert isinstance(given, UserPromptPart)
    plan = Marathon.model_validate_json(str(given.content))
    results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    number = int(results[0].model_response_str()) + 1 if results else 1
    stops = any(0 <= number - place < plan.gates for place in (plan.first, plan.last))
    part: TextPart | ToolCallPart = TextPart("done")
    if number < plan.last + plan.gates:
        part = ToolCallPart("halt" if stops else "stride", {"number": number}, f"call-{number}")
    return ModelResponse(parts=[part], usage=TOKENS)


marathon = spec_of(
    "marathon",
    input=Marathon,
    model=march,
    tools=[stride, halt],
    compaction=Compaction(messages=201, summarise=lambda messages: f"{len(messages)} messages"),
)
