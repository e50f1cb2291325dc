"""A completion as the stream of server-sent events that a provider makes of it."""

import json
from collections.abc import Iterator
from typing import Any

DONE = b"data: [DONE]\n\n"
PIECE = 24  # characters


def events_of(completion: dict[str, Any]) -> list[bytes]:
    """Every event, the text and the arguments of calls in pieces; the last one says that it is over."""
    (choice,) = completion["choices"]
    deltas = list(_deltas(choice["message"]))
    chunks = [_chunk(completion, choices=[{"index": 0, "delta": delta}]) for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    return [
        *chunks,
        _chunk(completion, choices=[end]),
        _chunk(completion, choices=[], usage=completion["usage"]),
        DONE,
    ]


def said(completion: dict[str, Any], text: str) -> bytes:
    """One more piece of text."""
    return _chunk(completion, choices=[{"index": 0, "delta": {"content": text}}])


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
    chunk = {
        "id": completion["id"],
        "object": "chat.completion.chunk",
        "created": completion["created"],
        "model": completion["model"],
        **more,
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
