"""Translates a frame's messages into the provider-neutral ones of pydantic-ai, and its tools into functions.

A reply is stored as the provider sent it (see agents.llm.replies), except that secret arguments are sealed. It is
sent back unchanged, except for arguments that are no JSON object, and for what agents.llm.fitting changes. We
number its calls by position and not by the provider's ids: `c3.1` is the second call of the reply of turn 3.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import Any

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
from agents.llm.received import args_of, calls_in
from agents.llm.replies import NO_TIME
from agents.sdk import outputs
from agents.sdk.scripts import conversation_texts as texts
from agents.sdk.spec import FINAL_ANSWER, AgentSpec, ToolSpec
from runtime.core.continuation import Call, CutReply, PlanItem
from runtime.keyring import held

# The text with which other clients of this layer tell a model that its own arguments cannot be read.
INVALID_JSON = "INVALID_JSON"

_NO_REPLY = ModelResponse(parts=[])


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
            case "model":
                reply = _reply(secret, message, made)
                conversation.append(reply)
            case "results":
                parts = [_result(secret, questions, reply, result) for result in message["results"]]
                conversation.append(_request(told, parts))
            case _:
                conversation.append(_request(told, [*_memory(message), _prompt(message)]))
    return conversation


def _prompt(message: dict[str, Any]) -> UserPromptPart:
    """Word what the model is told that is not a result of its calls."""
    match message["role"]:
        case "input":
            text = json.dumps(message["content"], ensure_ascii=False)
        case "summary":
            text = f"{texts.SUMMARY}{held.open_text(message['content'])}"
        case "message":
            text = f"{texts.MESSAGE}{message['by']}: {message['content']}"
        case "question":
            text = inquiry_text(message)
        case role:
            raise ValueError(f"a frame has no messages of role {role}")
    return UserPromptPart(content=text)


def _memory(message: dict[str, Any]) -> list[UserPromptPart]:
    """Return what the run remembers of earlier ones. Each text is a line of JSON, so none can pass for two."""
    lines = [json.dumps(_remembered(one), ensure_ascii=False) for one in message.get("memory", ())]
    return [UserPromptPart(content=texts.MEMORY + "\n".join(lines))] if lines else []


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
    call = f"{message['tool']} ({message['call']})"
    question = f"{message['by']}{texts.ASKS}{message['content']}"
    return f"{texts.QUESTION}{texts.ANSWER_IT}{call}. {question}"


def sum_up(agent: AgentSpec, instructions: str = "", tokens: int = 0) -> ModelMessage:
    """Return the message that requests a summary instead of the next step; with `tokens`, one of the memory."""
    text = f"{texts.SUM_UP_MEMORY}{tokens}" if tokens else texts.SUM_UP
    return _request(instructions or agent.instructions, [UserPromptPart(content=text)])


def after_cut(agent: AgentSpec, cut: CutReply | None, instructions: str = "") -> list[ModelMessage]:
    """Return the message about a reply that was cut off, none without one. Each attempt gets its own."""
    if cut is None:
        return []
    facts = {
        "cut_by": texts.CUT_BY[cut.cause],
        "beginning": held.open_text(cut.text),
        "cut_after_tokens": cut.tokens,
        "since": cut.since.isoformat(timespec="seconds"),
    }
    part = UserPromptPart(content=f"{texts.CUT}{json.dumps(facts, ensure_ascii=False)}")
    return [_request(instructions or agent.instructions, [part])]


def reminder(
    agent: AgentSpec, todo: tuple[PlanItem, ...], instructions: str = ""
) -> list[ModelMessage]:
    """Return the message with the open items, none if the plan has no such item.

    It goes to the end of each request, where no compaction removes it, and is not stored: it would break the cached
    beginning of the conversation.
    """
    items = list(enumerate(todo, 1))
    open_items = [f"{number}. {one.text}" for number, one in items if one.state != "done"]
    if not open_items:
        return []
    doing = [f", and item {number} is at work" for number, one in items if one.state == "doing"]
    counts = f"{len(todo) - len(open_items)} of {len(todo)} items are done{''.join(doing)}."
    text = "\n".join([f"{texts.PLAN}{counts} Open:", *open_items])
    return [_request(instructions or agent.instructions, [UserPromptPart(content=text)])]


@lru_cache(256)
def tools_of(
    agent: AgentSpec, *, summary: bool = False, as_text: bool = False
) -> ModelRequestParameters:
    """List the model's functions: the agent's tools, its sub-agents, and `final_answer` if its result is typed.

    With a typed result the model must call one of them, unless it is asked for a `summary`, or answers `as_text`.
    """
    schemas: list[tuple[ToolSpec | AgentSpec, Any]] = [(tool, tool.schema) for tool in agent.tools]
    schemas += [(child, child.input_schema) for child in agent.subagents]
    function_tools = [
        ToolDefinition(name=one.name, description=one.description, parameters_json_schema=schema)
        for one, schema in schemas
    ]
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
    given = message.parts if kept["calls"] else [_as_text(part) for part in message.parts]
    parts = [_restored(secret, part) for part in given]
    if "given_by" in kept:
        parts = _marked(parts)
    if all(map(is_, parts, message.parts)):
        return message
    return replace(message, parts=parts)


def _marked(parts: list[Any]) -> list[Any]:
    """Mark a reply as one that a person gave, with its text if it has one."""
    if parts and isinstance(parts[0], TextPart):
        return [replace(parts[0], content=f"{texts.GIVEN}{parts[0].content}"), *parts[1:]]
    return [TextPart(content=texts.GIVEN.rstrip()), *parts]


def _as_text(part: Any) -> Any:
    """Turn a call of `final_answer` into text: providers reject a call in the history that has no result."""
    if not isinstance(part, ToolCallPart):
        return part
    return TextPart(content=part.args if isinstance(part.args, str) else json.dumps(part.args))


def _restored(secret: Mapping[str, ToolSpec], part: Any) -> Any:
    part = held_answers.with_open_details(part)
    if not isinstance(part, ToolCallPart):
        return held_answers.opened(part)
    if (tool := secret.get(part.tool_name)) is not None:
        opened = secrets.open_reply(tool, part.args)
        part = part if opened is part.args else replace(part, args=opened)
    else:
        part = held_answers.opened(part)
    args = part.args if type(part.args) is dict else args_of(part)
    return part if isinstance(args, dict) else replace(part, args={INVALID_JSON: args})


def _result(
    secret: Mapping[str, ToolSpec],
    questions: Collection[str],
    reply: ModelResponse,
    result: dict[str, Any],
) -> ToolReturnPart | UserPromptPart:
    index = int(result["call"].rsplit(".", 1)[1])
    calls = calls_in(reply)
    if index >= len(calls) and FINAL_ANSWER in secret and result["tool"] == FINAL_ANSWER:
        told = _told(secret[FINAL_ANSWER], questions, result)[1]
        return UserPromptPart(content=f"{texts.ABOUT_ANSWER}{told}")
    if index >= len(calls):  # a text that was refused, because the result is typed
        return UserPromptPart(content=f"{texts.NOT_TAKEN}{result['content']}")
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
) -> tuple[texts.Outcome, Any]:
    """Return the outcome of a call, and its result in words. `tool` is that of a call with secrets."""
    if result["outcome"] == "waiting":
        return "success", texts.WAITING
    kept = result["content"]
    content = kept if tool is None else secrets.open_result(tool, kept)
    outcome, told = texts.word_outcome(result["outcome"], content, result.get("verdict"))
    if "changed_by" in result:
        told = f"{texts.CHANGED}{json.dumps(content, ensure_ascii=False)}"
    elif "reported_by" in result:
        words = texts.word_report(result, question=result["tool"] in questions)
        told = f"{words}{json.dumps(content, ensure_ascii=False)}"
    elif result["tool"] in questions and result.get("verdict") == "expire":
        told = f"{texts.UNANSWERED}{content}"
    elif "edited_by" in result and outcome == "success":
        told = f"{texts.RESULT}{json.dumps(content, ensure_ascii=False)}"
    if "edited_by" in result:
        args = held.opened_args(result["tool"], result["args"])
        told = f"{texts.EDITED}{json.dumps(args, ensure_ascii=False)}\n{told}"
    return outcome, told
