"""Translates a frame's messages into the provider-neutral ones of pydantic-ai, and its tools into functions.

A reply is stored as the provider sent it (see agents.llm.replies), except that secret arguments are sealed. It is
sent back unchanged, except for parts that a provider rejects: arguments that are no JSON object, and repeated ids. We
number its calls by position and not by the provider's ids: `c3.1` is the second call of the reply of turn 3.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import Any, Literal

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from agents import secrets
from agents.llm import held_answers, replies
from agents.llm.plain_replies import NO_TIME
from agents.llm.received import args_of, calls_in
from agents.sdk import outputs
from agents.sdk.scripts.conversation_texts import (
    ABOUT_ANSWER,
    ANSWER_IT,
    ANSWERED,
    ANSWERED_BY_POLICY,
    ANSWERED_QUESTION,
    ASKS,
    CHANGED,
    CUT,
    CUT_BY,
    EDITED,
    EXPIRED,
    GIVEN,
    GIVEN_UP,
    MEMORY,
    MESSAGE,
    NOT_TAKEN,
    QUESTION,
    REFUSED,
    REPORTED,
    RESULT,
    SUM_UP,
    SUM_UP_MEMORY,
    SUMMARY,
    UNANSWERED,
    WAITING,
)
from agents.sdk.spec import FINAL_ANSWER, AgentSpec, ToolSpec
from runtime.core.continuation import Call, CutReply
from runtime.core.denial_text import changes_text, denial_text
from runtime.keyring import held

# The text with which other clients of this layer tell a model that its own arguments cannot be read.
INVALID_JSON = "INVALID_JSON"

_NO_REPLY = ModelResponse(parts=[])

Outcome = Literal["success", "failed", "denied"]


def to_provider(
    agent: AgentSpec,
    messages: tuple[dict[str, Any], ...],
    begun: list[ModelMessage] | None = None,
    instructions: str = "",
    calls: tuple[Call, ...] = (),
) -> list[ModelMessage]:
    """Convert the conversation of one frame; pydantic-ai expects the instructions in every request.

    Each message becomes one message. `begun` holds the first ones, converted before; the others are added to it, and
    it is returned. Empty `instructions` mean the agent's own. `calls` are the frame's calls.
    """
    told = instructions or agent.instructions
    secret, questions = _secret_tools(agent), _questions(agent)
    conversation = [] if begun is None else begun
    added = messages[len(conversation) :]
    reply = _last_reply(conversation)
    made = replies.calls_of(added, calls)
    for message in added:
        match message["role"]:
            case "input":
                text = json.dumps(message["content"], ensure_ascii=False)
                given = [*_memory(message), UserPromptPart(content=text)]
                conversation.append(_request(told, given))
            case "model":
                reply = _reply(secret, message, made)
                conversation.append(reply)
            case "results":
                parts = [_result(secret, questions, reply, result) for result in message["results"]]
                conversation.append(_request(told, parts))
            case "summary":
                part = UserPromptPart(content=f"{SUMMARY}{held.open_text(message['content'])}")
                conversation.append(_request(told, [part]))
            case "message":
                part = UserPromptPart(content=f"{MESSAGE}{message['by']}: {message['content']}")
                conversation.append(_request(told, [part]))
            case "question":
                conversation.append(_request(told, [UserPromptPart(content=inquiry_text(message))]))
            case role:
                raise ValueError(f"a frame has no messages of role {role}")
    return conversation


def _memory(message: dict[str, Any]) -> list[UserPromptPart]:
    """Return what the run remembers of earlier ones. Each text is a line of JSON, so none can pass for two."""
    lines = [json.dumps(_remembered(one), ensure_ascii=False) for one in message.get("memory", ())]
    return [UserPromptPart(content=MEMORY + "\n".join(lines))] if lines else []


_WHO: dict[str, dict[str, str]] = {
    "asked": {},
    "answered": {"answered_by": "you"},
    "summary": {"summed_up_by": "you"},
}


def _remembered(one: dict[str, Any]) -> dict[str, Any]:
    who = _WHO[one["kind"]] or {"asked_by": one["by"]}
    if one["text"] is None:
        return {"at": one["at"], **who, "erased": True}
    # A person could write the sealed text of a model into a message, and would then read it opened.
    text = held.open_text(one["text"]) if one["kind"] == "summary" else one["text"]
    return {"at": one["at"], **who, "text": text}


def _last_reply(conversation: list[ModelMessage]) -> ModelResponse:
    for message in reversed(conversation):
        if isinstance(message, ModelResponse):
            return message
    return _NO_REPLY


@lru_cache(256)
def _secret_tools(agent: AgentSpec) -> dict[str, ToolSpec]:
    return {tool.name: tool for tool in agent.all_tools if tool.secret_args or tool.secret_result}


@lru_cache(256)
def _questions(agent: AgentSpec) -> frozenset[str]:
    return frozenset(tool.name for tool in agent.tools if tool.question)


def inquiry_text(message: Mapping[str, Any]) -> str:
    """Word a person's inquiry to the model."""
    return f"{QUESTION}{ANSWER_IT}{message['tool']} ({message['call']}). {message['by']}{ASKS}{message['content']}"


def sum_up(agent: AgentSpec, instructions: str = "", tokens: int = 0) -> ModelMessage:
    """Return the message that requests a summary instead of the next step; with `tokens`, one of the memory."""
    text = f"{SUM_UP_MEMORY}{tokens}" if tokens else SUM_UP
    return _request(instructions or agent.instructions, [UserPromptPart(content=text)])


def after_cut(agent: AgentSpec, cut: CutReply | None, instructions: str = "") -> list[ModelMessage]:
    """Return the message about a reply that was cut off, none without one. Each attempt gets its own."""
    if cut is None:
        return []
    facts = {
        "cut_by": CUT_BY[cut.cause],
        "beginning": held.open_text(cut.text),
        "cut_after_tokens": cut.tokens,
        "since": cut.since.isoformat(timespec="seconds"),
    }
    part = UserPromptPart(content=f"{CUT}{json.dumps(facts, ensure_ascii=False)}")
    return [_request(instructions or agent.instructions, [part])]


@lru_cache(256)
def tools_of(
    agent: AgentSpec, *, summary: bool = False, as_text: bool = False
) -> ModelRequestParameters:
    """List the model's functions: the agent's tools, its sub-agents, and `final_answer` if its result is typed.

    With a typed result the model must call one of them, unless it is asked for a `summary`, or answers `as_text`.
    """
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
    function_tools = [*tools, *delegations]
    if agent.output_schema is None or as_text:
        return ModelRequestParameters(function_tools=function_tools, allow_text_output=True)
    final = ToolDefinition(
        name=FINAL_ANSWER,
        description=outputs.DESCRIPTION,
        parameters_json_schema=agent.output_schema,
        kind="output",
    )
    return ModelRequestParameters(
        function_tools=function_tools,
        output_mode="tool",
        output_tools=[final],
        allow_text_output=summary,
    )


def _request(instructions: str, parts: list[Any]) -> ModelRequest:
    return ModelRequest(parts=parts, instructions=instructions)


def _reply(
    secret: Mapping[str, ToolSpec], kept: dict[str, Any], made: Mapping[str, Call]
) -> ModelResponse:
    """Restore a stored reply in a form that every provider accepts. Raise as secrets.open_reply.

    `secret` are the agent's tools with secrets, `made` the calls of the reply's frame by id.
    """
    message: ModelResponse = held_answers.with_open_details(replies.read(kept, made))
    taken: set[str] = set()
    given = message.parts if kept["calls"] else [_as_text(part) for part in message.parts]
    parts = [_restored(secret, part, taken) for part in given]
    if "given_by" in kept:
        parts = _marked(parts)
    if all(map(is_, parts, message.parts)):
        return message
    return replace(message, parts=parts)


def _marked(parts: list[Any]) -> list[Any]:
    """Mark a reply as one that a person gave, with its text if it has one."""
    if parts and isinstance(parts[0], TextPart):
        return [replace(parts[0], content=f"{GIVEN}{parts[0].content}"), *parts[1:]]
    return [TextPart(content=GIVEN.rstrip()), *parts]


def _as_text(part: Any) -> Any:
    """Turn a call of `final_answer` into text: providers reject a call in the history that has no result."""
    if not isinstance(part, ToolCallPart):
        return part
    return TextPart(content=part.args if isinstance(part.args, str) else json.dumps(part.args))


def _restored(secret: Mapping[str, ToolSpec], part: Any, taken: set[str]) -> Any:
    part = held_answers.with_open_details(part)
    if not isinstance(part, ToolCallPart):
        return held_answers.opened(part)
    if (tool := secret.get(part.tool_name)) is not None:
        opened = secrets.open_reply(tool, part.args)
        part = part if opened is part.args else replace(part, args=opened)
    else:
        part = held_answers.opened(part)
    args = part.args if type(part.args) is dict else args_of(part)
    if not isinstance(args, dict):
        part = replace(part, args={INVALID_JSON: args})
    call_id, number = part.tool_call_id, 1
    while call_id in taken or not call_id:
        number += 1
        call_id = f"{part.tool_call_id or 'call'}-{number}"
    taken.add(call_id)
    return part if call_id == part.tool_call_id else replace(part, tool_call_id=call_id)


def _result(
    secret: Mapping[str, ToolSpec],
    questions: Collection[str],
    reply: ModelResponse,
    result: dict[str, Any],
) -> ToolReturnPart | UserPromptPart:
    index = int(result["call"].rsplit(".", 1)[1])
    calls = calls_in(reply)
    if index >= len(calls) and FINAL_ANSWER in secret and result["tool"] == FINAL_ANSWER:
        waits = result["outcome"] == "waiting"
        told = WAITING if waits else _told(secret[FINAL_ANSWER], questions, result)[1]
        return UserPromptPart(content=f"{ABOUT_ANSWER}{told}")
    if index >= len(calls):  # a text that was refused, because the result is typed
        return UserPromptPart(content=f"{NOT_TAKEN}{result['content']}")
    if result["outcome"] == "waiting":
        return ToolReturnPart(
            tool_name=result["tool"],
            content=WAITING,
            tool_call_id=calls[index].tool_call_id,
            timestamp=NO_TIME,
        )
    outcome, told = _told(secret.get(result["tool"]), questions, result)
    return ToolReturnPart(
        tool_name=result["tool"],
        content=told,
        tool_call_id=calls[index].tool_call_id,
        outcome=outcome,
        timestamp=NO_TIME,
    )


def _told(
    tool: ToolSpec | None, questions: Collection[str], result: dict[str, Any]
) -> tuple[Outcome, Any]:
    """Return the outcome of a call, and its result in words. `tool` is that of a call with secrets."""
    kept = result["content"]
    content = kept if tool is None else secrets.open_result(tool, kept)
    outcome, told = _wording(result["outcome"], content, result.get("verdict"))
    if "changed_by" in result:
        told = f"{CHANGED}{json.dumps(content, ensure_ascii=False)}"
    elif "reported_by" in result:
        words = _given(result, question=result["tool"] in questions)
        told = f"{words}{json.dumps(content, ensure_ascii=False)}"
    elif result["tool"] in questions and result.get("verdict") == "expire":
        told = f"{UNANSWERED}{content}"
    elif "edited_by" in result and outcome == "success":
        told = f"{RESULT}{json.dumps(content, ensure_ascii=False)}"
    if "edited_by" in result:
        args = held.opened_args(result["tool"], result["args"])
        told = f"{EDITED}{json.dumps(args, ensure_ascii=False)}\n{told}"
    return outcome, told


def _given(result: dict[str, Any], *, question: bool) -> str:
    """Say who gave a result that is not of the call itself. Without a name the policy gave it."""
    if not result.get("answered"):
        return REPORTED
    if not result["reported_by"]:
        return ANSWERED_BY_POLICY
    return ANSWERED_QUESTION if question else ANSWERED


def _wording(outcome: str, content: Any, verdict: str | None) -> tuple[Outcome, Any]:
    """Word the outcome of a call for the model, by what ended it."""
    match outcome, verdict:
        case "returned", _:
            return "success", content
        case "failed", "give_up":
            return "failed", f"{GIVEN_UP}{content}"
        case "failed", _:
            return "failed", content
        case "denied", "expire":
            return "denied", f"{EXPIRED}{content}"
        case "denied", "request_changes":
            return "denied", changes_text(content)
        case "denied", _:
            return "denied", denial_text(content)
        case "refused", _:
            return "failed", f"{REFUSED}{content}"
        case _:
            raise ValueError(f"a result has no outcome {outcome}")
