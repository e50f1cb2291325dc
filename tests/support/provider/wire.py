"""A provider without a socket: the real clients get these bytes in answer to their requests, in both protocols."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any
from uuid import uuid4

import pytest
from httpx2 import AsyncByteStream, AsyncClient, MockTransport, Request, Response
from pydantic import BaseModel
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.endpoints import Endpoint, ProviderKind
from agents.sdk import agent, tool
from tests.support.specs import Frame, registry_of

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
KEY = "sk-canary"
DONE = b"data: [DONE]\n\n"
Part = dict[str, Any]


SILENCE = b"silence"  # a piece of a stream: nothing more comes


class Pieces(AsyncByteStream):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if piece is SILENCE:
                await asyncio.Event().wait()
            yield piece


class Wire:
    """Answers requests in order. An answer is the pieces of a stream, a document, or a whole response."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
        self.answers: list[Any] = []
        self.requests: list[Request] = []
        self.bodies: list[dict[str, Any]] = []
        for library in ("openai", "anthropic"):
            transport = MockTransport(self._answer)
            monkeypatch.setattr(
                f"{library}.DefaultAsyncHttpxClient",
                lambda transport=transport, verify=None, **options: AsyncClient(
                    transport=transport, **{"follow_redirects": True, **options}
                ),
            )
        monkeypatch.setattr("agents.llm.providers._refused", {})
        kinds = {
            "fake": (ProviderKind.OPENAI, True),
            "gpu": (ProviderKind.VLLM, True),
            "claude": (ProviderKind.ANTHROPIC, True),
            "plain": (ProviderKind.OPENAI, False),
            "plain_claude": (ProviderKind.ANTHROPIC, False),
        }
        self.key = f"{KEY}-{uuid4()}"  # a key of its own: a client of its own
        url = "http://127.0.0.1"
        settings.SIGNOFF_PROVIDERS = {
            name: Endpoint(name=name, kind=kind, url=url, key=self.key, streams=streams)
            for name, (kind, streams) in kinds.items()
        }

    def _answer(self, request: Request) -> Response:
        self.requests.append(request)
        self.bodies.append(json.loads(request.content))
        answer = self.answers.pop(0)
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, dict):
            return Response(200, json=answer)
        headers = {"Content-Type": "text/event-stream"}
        return Response(200, headers=headers, stream=Pieces(answer))


class Order(BaseModel):
    number: str = "A-1"


class Summary(BaseModel):
    summary: str


@tool(effect="write")
def send(text: str) -> str:
    """Send a letter."""
    return "sent"


@tool(effect="write")
def ship(order: int) -> str:
    """Ship an order, by its number."""
    return "on its way"


@tool(effect="read")
def ping() -> str:
    """Say whether the shop is open."""
    return "open"


def frame_of(*models: str, **options: Any) -> Frame:
    """Return a frame of an agent whose models are at the wire."""
    spec = agent(
        name="clerk",
        description="Works.",
        instructions="Do it.",
        input=Order,
        models=list(models),
        **{"tools": [send, ship, ping], **options},
    )
    return Frame(AgentEffects(registry_of(spec)), "clerk", {"number": "A-1"})


def call_part(name: str, args: Any, call_id: Any = "call_1", index: int = 0) -> Part:
    """Return a call of OpenAI's protocol."""
    text = args if isinstance(args, str) else json.dumps(args)
    function = {"name": name, "arguments": text}
    return {"index": index, "id": call_id, "type": "function", "function": function}


def chunk(delta: Part | None = None, finish: str | None = None, usage: Any = None) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    known = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    usages = {} if usage is None else {"usage": usage}
    return b"data: " + json.dumps({**known, "choices": choices, **usages}).encode() + b"\n\n"


def openai(
    text: str | None = None,
    calls: Sequence[Part] = (),
    finish: str | None = "",
    usage: Any = USAGE,
    **extra: Any,
) -> list[bytes]:
    """Return the events of a reply; an empty `finish` stands for the right one."""
    reason = finish if finish != "" else "tool_calls" if calls else "stop"
    return [
        chunk({"role": "assistant", "content": text, **extra}),
        *(chunk({"tool_calls": [{**one, "index": n}]}) for n, one in enumerate(calls)),
        chunk({}, reason),
        *([] if usage is None else [chunk(None, usage=usage)]),
        DONE,
    ]


def use_part(name: str, args: Any, call_id: Any = "toolu_1") -> Part:
    """Return a call of Anthropic's protocol."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": args}


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def _event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


def message(*parts: Part, stop: str | None = "") -> dict[str, Any]:
    """Return a whole reply of Anthropic's protocol; an empty `stop` stands for the right one."""
    calls = any(part["type"] == "tool_use" for part in parts)
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": list(parts),
        "stop_reason": stop if stop != "" else "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 20},
    }


def anthropic(*parts: Part, stop: str | None = "") -> list[bytes]:
    """Return the events of a reply."""
    reply = message(*parts, stop=stop)
    begun = {**reply, "content": [], "stop_reason": None}
    begun["usage"] = {"input_tokens": 100, "output_tokens": 1}
    events = [_event("message_start", message=begun)]
    empty: Part
    for index, part in enumerate(parts):
        if part["type"] == "text":
            empty, delta = {"text": ""}, {"type": "text_delta", "text": part["text"]}
        else:
            pieces = json.dumps(part["input"])
            empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": pieces}
        events += [
            _event("content_block_start", index=index, content_block={**part, **empty}),
            _event("content_block_delta", index=index, delta=delta),
            _event("content_block_stop", index=index),
        ]
    delta = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    return [
        *events,
        _event("message_delta", delta=delta, usage={"output_tokens": 20}),
        _event("message_stop"),
    ]
