"""The chat-completions protocol of a strict provider, to and from the types of scripts, also as a stream.

A script does not see a call that could not be made, so it proposes the call again, as a model would.
"""

import json
import uuid
from collections.abc import Iterator
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from agents.sdk.scripts import REFUSED
from runtime.core.values.verdicts import DENIED, EXPIRED

DONE = b"data: [DONE]\n\n"
PIECE = 24  # characters


class BadRequest(Exception):
    """A provider would answer 400."""


def instructions_of(body: dict[str, Any]) -> str:
    system = [one["content"] for one in body["messages"] if one["role"] in ("system", "developer")]
    if len(system) != 1:
        raise BadRequest("there must be one system message")
    return str(system[0])


def conversation_of(body: dict[str, Any]) -> list[ModelMessage]:
    """Raise BadRequest for input that a strict provider rejects."""
    conversation: list[ModelMessage] = []
    waiting: dict[str, str] = {}
    for message in body["messages"]:
        if waiting and message["role"] != "tool":
            raise BadRequest(f"no result follows the calls {', '.join(waiting)}")
        match message["role"]:
            case "user":
                conversation.append(ModelRequest(parts=[UserPromptPart(message["content"])]))
            case "assistant":
                waiting = _calls_of(message)
                conversation.append(ModelResponse(parts=[]))
            case "tool":
                result = _result_of(message, waiting)
                conversation += [ModelRequest(parts=[result])] if result else []
    if waiting:
        raise BadRequest(f"no result follows the calls {', '.join(waiting)}")
    return conversation


def message_of(reply: ModelResponse) -> dict[str, Any]:
    calls = [
        {
            "id": f"call_{uuid.uuid4().hex}",
            "type": "function",
            "function": {"name": part.tool_name, "arguments": json.dumps(part.args)},
        }
        for part in reply.parts
        if isinstance(part, ToolCallPart)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    return {**message, "tool_calls": calls} if calls else message


def completion_of(message: dict[str, Any], model: str) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": 1_795_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 300, "completion_tokens": 7, "total_tokens": 307},
    }


def events_of(completion: dict[str, Any]) -> list[bytes]:
    """A completion as server-sent events, text and arguments in pieces; the last one says that it is over."""
    (choice,) = completion["choices"]
    deltas = list(_deltas(choice["message"]))
    chunks = [_chunk(completion, choices=[{"index": 0, "delta": delta}]) for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    usage = _chunk(completion, choices=[], usage=completion["usage"])
    return [*chunks, _chunk(completion, choices=[end]), usage, DONE]


def said(completion: dict[str, Any], text: str) -> bytes:
    """One more piece of text."""
    return _chunk(completion, choices=[{"index": 0, "delta": {"content": text}}])


def _calls_of(message: dict[str, Any]) -> dict[str, str]:
    calls: dict[str, str] = {}
    for call in message.get("tool_calls") or []:
        if call["id"] in calls:
            raise BadRequest(f"the id {call['id']} is there twice")
        if not isinstance(_parsed(call["function"]["arguments"]), dict):
            raise BadRequest("the arguments of a call are no JSON object")
        calls[call["id"]] = call["function"]["name"]
    return calls


def _result_of(message: dict[str, Any], waiting: dict[str, str]) -> ToolReturnPart | None:
    call, text = message["tool_call_id"], message["content"]
    if call not in waiting:
        raise BadRequest(f"no call has the id {call}")
    content = _parsed(text)
    failed = isinstance(content, dict) and set(content) == {"error"}
    denied = text.startswith((DENIED, EXPIRED))
    content = content["error"] if failed else content
    tool = waiting.pop(call)
    if failed and str(content).startswith(REFUSED):
        return None
    return ToolReturnPart(
        tool_name=tool,
        content=content,
        tool_call_id=call,
        outcome="failed" if failed else "denied" if denied else "success",
    )


def _parsed(text: str) -> Any:
    """Return the text parsed as JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in _pieces(message["content"] or ""):
        yield {"content": piece}
    for index, call in enumerate(message.get("tool_calls", [])):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield {"tool_calls": [{**call, "index": index, "function": function}]}
        for piece in _pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]


def _chunk(completion: dict[str, Any], **more: Any) -> bytes:
    known = {name: completion[name] for name in ("id", "created", "model")}
    chunk = {**known, "object": "chat.completion.chunk", **more}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
