"""Translates between a frame's messages and the provider-neutral ones of pydantic-ai, both ways.

A reply is stored as the provider gave it and goes back untouched. Our ids of its calls are positions:
`c3.1` is the second call of the reply of turn 3, whatever id the provider gave it.
"""

import json
from typing import Any, Literal

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from agents.spec import AgentSpec
from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.core.events import Proposal
from runtime.ports import ModelAnswer

DENIED = "A person denied this call, it was not made. The reason given: "
REFUSED = "This call could not be made: "

Outcome = Literal["success", "failed", "denied"]


def to_provider(agent: AgentSpec, messages: tuple[dict[str, Any], ...]) -> list[ModelMessage]:
    """The conversation of one frame; the instructions go with every request, as pydantic-ai wants them."""
    conversation: list[ModelMessage] = []
    reply = ModelResponse(parts=[])
    for message in messages:
        match message["role"]:
            case "input":
                text = json.dumps(message["content"], ensure_ascii=False)
                conversation.append(_request(agent, [UserPromptPart(content=text)]))
            case "model":
                reply = _reply(message["reply"])
                conversation.append(reply)
            case "results":
                parts = [_result(reply, result) for result in message["results"]]
                conversation.append(_request(agent, parts))
            case role:
                raise ValueError(f"a frame has no messages of role {role}")
    return conversation


def tools_of(agent: AgentSpec) -> ModelRequestParameters:
    """What the model may call: the agent's tools, and each sub-agent as one more."""
    tools = [
        ToolDefinition(
            name=tool.name, description=tool.description, parameters_json_schema=tool.schema
        )
        for tool in agent.tools
    ]
    delegations = [
        ToolDefinition(
            name=child.name,
            description=child.description,
            parameters_json_schema=child.input_schema,
        )
        for child in agent.subagents
    ]
    return ModelRequestParameters(function_tools=[*tools, *delegations], allow_text_output=True)


def from_provider(response: ModelResponse) -> ModelAnswer:
    """The reply as JSON and the facts the core needs of it. Raises NotJson for what cannot be journaled."""
    reply = ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    require_json(reply, "the model's reply")
    return ModelAnswer(
        reply=reply,
        text=response.text or "",
        calls=tuple(Proposal(tool=part.tool_name, args=_args(part)) for part in _calls(response)),
        usage={
            "input_tokens": response.usage.input_tokens,
            "output_tokens": response.usage.output_tokens,
        },
    )


def _request(agent: AgentSpec, parts: list[Any]) -> ModelRequest:
    return ModelRequest(parts=parts, instructions=agent.instructions)


def _reply(opaque: Any) -> ModelResponse:
    (message,) = ModelMessagesTypeAdapter.validate_python([opaque])
    if not isinstance(message, ModelResponse):
        raise TypeError("a stored reply is not a model's")
    return message


def _result(reply: ModelResponse, result: dict[str, Any]) -> ToolReturnPart:
    index = int(result["call"].rsplit(".", 1)[1])
    outcome, content = _told(result["outcome"], result["content"])
    return ToolReturnPart(
        tool_name=result["tool"],
        content=content,
        tool_call_id=_calls(reply)[index].tool_call_id,
        outcome=outcome,
    )


def _told(outcome: str, content: Any) -> tuple[Outcome, Any]:
    match outcome:
        case "returned":
            return "success", content
        case "failed":
            return "failed", content
        case "denied":
            return "denied", f"{DENIED}{content}"
        case "refused":
            return "failed", f"{REFUSED}{content}"
        case _:
            raise ValueError(f"a result has no outcome {outcome}")


def _calls(response: ModelResponse) -> list[ToolCallPart]:
    return [part for part in response.parts if isinstance(part, ToolCallPart)]


def _args(part: ToolCallPart) -> Any:
    """As proposed. Text that is not JSON stays text, which judging refuses."""
    if not isinstance(part.args, str):
        return part.args or {}
    try:
        args = json.loads(part.args or "{}")
        require_json(args)
    except (ValueError, RecursionError, NotJson):
        return part.args
    return args
