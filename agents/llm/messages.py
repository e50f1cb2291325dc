"""Translates a frame's messages into the provider-neutral ones of pydantic-ai, and its tools into functions.

A reply is stored as the provider sent it (see agents.llm.replies), except that secret arguments are sealed. It is
sent back unchanged, except for arguments that are no JSON object, and for what `fit` changes. We number its calls by
position and not by the provider's ids: `c3.1` is the second call of the reply of turn 3.
"""

import json
import re
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter, is_
from typing import Any
from uuid import UUID

from pydantic_ai.messages import (
    INVALID_JSON_KEY,
    BinaryContent,
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
from agents.llm import replies
from agents.sdk import inputs
from agents.sdk import scripts as texts
from agents.sdk.spec import FINAL_ANSWER, PIN, AgentSpec, ToolSpec
from runtime.core.documents.blobs import is_earlier_state
from runtime.core.run.continuation import Call
from runtime.core.values.json_values import copy_value, decode_file
from runtime.keyring import sealing
from runtime.ports import effects

KEPT = 64  # conversations of one process
MIN_CACHED_MESSAGES = 4  # a shorter conversation is not worth caching

_MAX_NAME = 64  # characters of a tool's name that every provider takes
_MAX_ID = 40  # characters of the id of a call
_as_json = json.JSONEncoder(ensure_ascii=False).encode
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")


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
    instructions = instructions or agent.instructions
    conversation = [] if begun is None else begun
    added = messages[len(conversation) :]
    calls_by_id = replies.find_calls(added, calls)
    for message in added:
        match message["role"]:
            case "model":
                conversation.append(_restore_reply(agent, message, calls_by_id))
                continue
            case "results":
                replied = (
                    entry for entry in reversed(conversation) if isinstance(entry, ModelResponse)
                )
                reply = next(replied, None)
                reply_calls = reply.tool_calls if reply else []
                parts = [
                    _build_result_part(agent, reply_calls, result) for result in message["results"]
                ]
            case "input":
                parts = [UserPromptPart(_as_json(message["content"]))]
                if memory := message.get("memory"):
                    # Each text is a line of JSON, so none can pass for two.
                    entries = map(_describe_memory, memory)
                    lines = [_as_json(entry) for entry in entries]
                    parts.insert(0, UserPromptPart(content=texts.MEMORY + "\n".join(lines)))
            case "summary":
                parts = [UserPromptPart(f"{texts.SUMMARY}{sealing.open_text(message['content'])}")]
            case "message":
                parts = [UserPromptPart(f"{texts.MESSAGE}{message['by']}: {message['content']}")]
            case "question":
                call = f"{message['tool']} ({message['call']})"
                question = f"{message['by']}{texts.ASKS}{message['content']}"
                parts = [UserPromptPart(f"{texts.QUESTION}{texts.ANSWER_IT}{call}. {question}")]
            case role:
                raise ValueError(f"a frame has no messages of role {role}")
        conversation.append(ModelRequest(parts=parts, instructions=instructions))
    return conversation


_AUTHOR = {"answered": {"answered_by": "you"}, "summary": {"summed_up_by": "you"}}


def _describe_memory(entry: dict[str, Any]) -> dict[str, Any]:
    author = _AUTHOR.get(entry["kind"]) or {"asked_by": entry["by"]}
    if entry["text"] is None:
        return {"at": entry["at"], **author, "erased": True}
    # A person could write the sealed text of a model into a message, and would then read it opened.
    text = sealing.open_text(entry["text"]) if entry["kind"] == "summary" else entry["text"]
    return {"at": entry["at"], **author, "text": text}


@dataclass(slots=True)
class _Begun:
    """The translated beginning of a conversation. Only the thread that took it out of `_cache` adds to it."""

    agent: AgentSpec
    instructions: str
    messages: tuple[dict[str, Any], ...]
    calls: tuple[Call, ...]
    conversation: list[ModelMessage]

    def begins(self, messages: tuple[dict[str, Any], ...], calls: tuple[Call, ...]) -> bool:
        """Say whether a frame with these messages and calls was once translated into this conversation."""
        return is_earlier_state(self.messages, messages) or (
            self.messages == messages[: len(self.messages)]
            and [*map(_FIELDS, self.calls)] == [*map(_FIELDS, calls[: len(self.calls)])]
        )


_FIELDS = attrgetter("id", "tool", "args")  # of a call, which a stored reply leaves out
_lock = threading.Lock()
_cache: "OrderedDict[tuple[UUID, str], _Begun]" = OrderedDict()


def convert_messages(
    agent: AgentSpec,
    run: UUID,
    frame: str,
    messages: tuple[dict[str, Any], ...],
    instructions: str = "",
    calls: tuple[Call, ...] = (),
) -> list[ModelMessage]:
    """Convert the messages of a frame, from the first one not cached. The caller may change the list.

    Messages are only added to a frame. If the first ones are the same objects as before, or equal ones after the run
    was loaded again, their conversion is reused: unless it opened secrets, which are not cached.
    """
    if len(messages) < MIN_CACHED_MESSAGES or agent.keeps_secrets:
        return to_provider(agent, messages, [], instructions, calls)
    key = (run, frame)
    with _lock:
        cached = _cache.pop(key, None)
    is_same = cached and cached.agent is agent and cached.instructions == instructions
    begun = cached.conversation if cached and is_same and cached.begins(messages, calls) else []
    conversation = to_provider(agent, messages, begun, instructions, calls)
    with _lock:
        _cache[key] = _Begun(agent, instructions, messages, calls, conversation)
        while len(_cache) > KEPT:
            _cache.popitem(last=False)
    return conversation.copy()


def build_endings(agent: AgentSpec, request: effects.ModelRequest) -> list[ModelMessage]:
    """Return the messages that a request ends with and that are not stored.

    They ask for a summary, quote the reply that was cut off, and list the plan, which no compaction can remove there.
    Stored, they would break the cached beginning of the conversation.
    """
    contents: list[str] = []
    if request.memory_tokens:
        contents.append(f"{texts.SUM_UP_MEMORY}{request.memory_tokens}")
    elif request.summary:
        contents.append(texts.SUM_UP)
    if request.cut is not None:
        facts = {
            "cut_by": texts.CUT_BY[request.cut.cause],
            "beginning": sealing.open_text(request.cut.text),
            "cut_after_tokens": request.cut.tokens,
            "since": request.cut.since.isoformat(timespec="seconds"),
        }
        contents.append(f"{texts.CUT}{_as_json(facts)}")
    if request.todo and any(item.state != "done" for item in request.todo):
        todo = list(enumerate(request.todo, 1))
        lines = [f"{n}. {item.text}" for n, item in todo if item.state != "done"]
        doing = [f", and item {n} is at work" for n, item in todo if item.state == "doing"]
        counts = f"{len(todo) - len(lines)} of {len(todo)} items are done{''.join(doing)}."
        contents.append("\n".join([f"{texts.PLAN}{counts} Open:", *lines]))
    if not contents:
        return []
    instructions = request.instructions or agent.instructions
    return [
        ModelRequest(parts=[UserPromptPart(content=content)], instructions=instructions)
        for content in contents
    ]


@lru_cache(256)
def build_model_tools(
    agent: AgentSpec, *, summary: bool = False, as_text: bool = False
) -> ModelRequestParameters:
    """List the model's functions: the agent's tools, its sub-agents, and `final_answer` if its result is typed.

    With a typed result the model must call one of them, unless it is asked for a `summary`, or answers `as_text`.
    """
    schemas: list[tuple[ToolSpec | AgentSpec, Any]] = [(tool, tool.schema) for tool in agent.tools]
    schemas += [(child, child.input_schema) for child in agent.subagents]
    tools = [
        ToolDefinition(
            name=spec.name,
            description=spec.description,
            # Some providers refuse keywords that they do not know.
            parameters_json_schema={key: rule for key, rule in schema.items() if key != PIN},
        )
        for spec, schema in schemas
    ]
    if agent.output_schema is None or as_text:
        return ModelRequestParameters(function_tools=tools)
    final = ToolDefinition(
        name=FINAL_ANSWER,
        description=inputs.DESCRIPTION,
        parameters_json_schema=agent.output_schema,
        kind="output",
    )
    return ModelRequestParameters(
        function_tools=tools, output_mode="tool", output_tools=[final], allow_text_output=summary
    )


def _restore_reply(
    agent: AgentSpec, message: dict[str, Any], calls: Mapping[str, Call]
) -> ModelResponse:
    """Restore a stored reply in a form that every provider accepts. Raise as secrets.open_reply."""
    reply: ModelResponse = replies.open_details(replies.restore_reply(message, calls))
    parts = []
    for part in reply.parts:
        if isinstance(part, ToolCallPart) and not message["calls"]:
            # Providers reject a call in the history that has no result, as that of `final_answer`.
            text = part.args if isinstance(part.args, str) else json.dumps(part.args)
            parts.append(_restore_part(agent, TextPart(content=text)))
        else:
            parts.append(_restore_part(agent, part))
    if "given_by" in message:
        if parts and isinstance(parts[0], TextPart):
            parts[0] = replace(parts[0], content=f"{texts.GIVEN}{parts[0].content}")
        else:
            parts.insert(0, TextPart(content=texts.GIVEN.rstrip()))
    return reply if all(map(is_, parts, reply.parts)) else replace(reply, parts=parts)


def _restore_part(agent: AgentSpec, part: Any) -> Any:
    part = replies.open_details(part)
    if not isinstance(part, ToolCallPart):
        return replies.open_part(part)
    tool = agent.tool(part.tool_name) if agent.keeps_secrets else None
    if tool is not None and tool.secret_args:
        args = secrets.open_reply(tool, part.args)
        part = part if args is part.args else replace(part, args=args)
    else:
        part = replies.open_part(part)
    args = part.args if type(part.args) is dict else replies.decode_args(part)
    return part if isinstance(args, dict) else replace(part, args={INVALID_JSON_KEY: args})


def _build_result_part(
    agent: AgentSpec, calls: list[ToolCallPart], result: dict[str, Any]
) -> ToolReturnPart | UserPromptPart:
    outcome, content = _word_result(agent, result)
    if (
        isinstance(content, dict)
        and "base64" in content
        and (file := decode_file(content)) is not None
    ):
        # The model looks at it. One that takes no files gets a note instead.
        binary = BinaryContent(data=file.data, media_type=file.media_type)
        content = [f"{file.media_type}, {len(file.data)} bytes", binary]
    else:
        content = copy_value(content)  # a script may change it
    index = int(result["call"].rsplit(".", 1)[1])
    if index < len(calls):
        return ToolReturnPart(
            tool_name=result["tool"],
            content=content,
            tool_call_id=calls[index].tool_call_id,
            outcome=outcome,
            timestamp=replies.NO_TIME,
        )
    if agent.answer is not None and result["tool"] == FINAL_ANSWER:
        return UserPromptPart(content=f"{texts.ABOUT_ANSWER}{content}")
    # a text that was refused, because the result is typed
    return UserPromptPart(content=f"{texts.NOT_TAKEN}{result['content']}")


def _word_result(agent: AgentSpec, result: dict[str, Any]) -> tuple[texts.Outcome, Any]:
    """Return the outcome of a call, and its result in words."""
    if result["outcome"] == "waiting":
        return "success", texts.WAITING
    tool, verdict = agent.tool(result["tool"]), result.get("verdict")
    content = result["content"] if tool is None else secrets.open_result(tool, result["content"])
    is_question = tool is not None and tool.question
    outcome, words = texts.word_outcome(result["outcome"], content, verdict, question=is_question)
    if "changed_by" in result:
        words = f"{texts.CHANGED}{_as_json(content)}"
    elif "reported_by" in result:
        report = texts.word_report(result, question=is_question)
        words = f"{report}{_as_json(content)}"
    elif "edited_by" in result and outcome == "success":
        words = f"{texts.RESULT}{_as_json(content)}"
    if "edited_by" in result:
        args = sealing.open_args_for_reviewers(result["tool"], result["args"])
        words = f"{texts.EDITED}{_as_json(args)}\n{words}"
    return outcome, words


def fit(conversation: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation with names, ids, texts and results that every provider takes.

    Some answer 400 to names and ids of calls with other characters, to an id that two calls have, and to blank texts
    and results. Another provider may have written the replies, and the journal keeps them as they came.
    """
    used: dict[str, int] = {}  # ids of all calls so far, and how many began as each
    ids: defaultdict[str, deque[str]] = defaultdict(deque)  # of the last reply, by the provider's
    fitted: list[ModelMessage] = []
    message: Any
    for message in conversation:
        if isinstance(message, ModelResponse):
            ids.clear()
        parts = [_fit_part(part, used, ids) for part in message.parts]
        parts = [part for part in parts if part is not None]
        is_same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
        fitted.append(message if is_same else replace(message, parts=parts))
    return fitted


def _fit_part(part: Any, used: dict[str, int], ids: defaultdict[str, deque[str]]) -> Any:
    """Return the part as every provider takes it, None for a blank text."""
    match part:
        case TextPart():
            return part if part.content.strip() else None
        case ToolCallPart():
            stem = call_id = _OTHER.sub("_", part.tool_call_id)[:_MAX_ID] or "call"
            while call_id in used:
                used[stem] += 1
                call_id = f"{stem[: _MAX_ID - 6]}-{used[stem]}"
            used[call_id] = 1
            ids[part.tool_call_id].append(call_id)
            fields: dict[str, Any] = {"tool_call_id": call_id}
        case ToolReturnPart():
            waiting = ids[part.tool_call_id]
            fields = {"tool_call_id": waiting.popleft() if waiting else part.tool_call_id}
            if part.content is None or (isinstance(part.content, str) and not part.content.strip()):
                fields["content"] = texts.NOTHING_RETURNED
        case _:
            return part
    fields["tool_name"] = _OTHER.sub("_", part.tool_name)[:_MAX_NAME] or "unnamed"
    changed = any(getattr(part, name) != value for name, value in fields.items())
    return replace(part, **fields) if changed else part
