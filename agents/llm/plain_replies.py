"""Dumps and builds the replies that most models give, without pydantic, which takes three times as long.

Their parts are texts, thoughts and calls of tools, and their fields are of the types named here. For any other reply
both functions return None, and pydantic has to dump or validate it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    FinishReason,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.usage import RequestUsage

# Parts that lose only `part_kind` when defaults are omitted. Other parts may need it to be distinguished.
KINDS: dict[type, str] = {TextPart: "text", ThinkingPart: "thinking", ToolCallPart: "tool-call"}
COUNTED = frozenset({"input_tokens", "output_tokens"})  # the event has them
NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # of a message whose time is in its entry
_FINISHED = get_args(FinishReason)
_USAGES = TypeAdapter(RequestUsage)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A class, its fields that may be text or objects, and its fields with a treatment of their own."""

    make: type[Any]
    texts: frozenset[str]
    objects: frozenset[str] = frozenset({"provider_details"})
    apart: frozenset[str] = frozenset({"part_kind"})


_TEXT = _Known(make=TextPart, texts=frozenset({"content", "id", "provider_name"}))
_THINKING = _Known(
    make=ThinkingPart, texts=frozenset({"content", "id", "signature", "provider_name"})
)
_CALL = _Known(
    make=ToolCallPart,
    texts=frozenset({"tool_name", "args", "tool_call_id", "id", "provider_name"}),
    objects=frozenset({"args", "provider_details"}),
)
_REPLY = _Known(
    make=ModelResponse,
    texts=frozenset({"model_name", "provider_name", "provider_url", "provider_response_id"}),
    apart=frozenset({"parts", "usage", "finish_reason"}),
)
_DUMPED = _Known(
    make=ModelResponse,
    texts=_REPLY.texts | {"finish_reason"},
    apart=frozenset({"parts", "usage", "timestamp", "kind", "state"}),
)
_PARTS = {"text": _TEXT, "thinking": _THINKING, "tool-call": _CALL}


def build(reply: dict[str, Any], kept: Sequence[dict[str, Any]]) -> ModelResponse | None:
    """Build a stored reply with these parts in place of its own."""
    parts = [_part(part) for part in kept]
    if None in parts:
        return None
    if len(reply) == 1:  # its parts, as a script's reply
        return ModelResponse(parts=parts, timestamp=NO_TIME)
    fields, finished = _checked(reply, _REPLY), reply.get("finish_reason")
    if fields is None or not (finished is None or finished in _FINISHED):
        return None
    return ModelResponse(
        parts=parts,
        usage=_USAGES.validate_python(reply["usage"]) if "usage" in reply else RequestUsage(),
        timestamp=NO_TIME,
        finish_reason=finished,
        **fields,
    )


def _part(kept: dict[str, Any]) -> Any:
    known = _PARTS.get(kept["part_kind"])
    fields = None if known is None else _checked(kept, known)
    if known is None or fields is None:
        return None
    try:
        return known.make(**fields)
    except TypeError:  # a required field is missing
        return None


def _checked(kept: dict[str, Any], known: _Known) -> dict[str, Any] | None:
    """Return the fields to make an object of; None if one of them is unknown or of another type."""
    fields: dict[str, Any] = {}
    for name, value in kept.items():
        if type(value) is str and name in known.texts:
            fields[name] = value
        elif type(value) is dict and name in known.objects:
            fields[name] = dict(value)  # or a script could change what its run keeps
        elif name not in known.apart:
            return None
    return fields


def dump(response: ModelResponse) -> dict[str, Any] | None:
    """Dump a reply without nulls, defaults, its time and its tokens; the arguments of its calls stay as they are."""
    if response.state != "complete" or _has_details(response.usage):
        return None
    parts = [_part_dumped(part) for part in response.parts]
    kept = None if None in parts else _own(response, _DUMPED)
    return None if kept is None else {"parts": parts, **kept}


def _has_details(usage: RequestUsage) -> bool:
    return any(value and name not in COUNTED for name, value in vars(usage).items())


def _part_dumped(part: Any) -> dict[str, Any] | None:
    kind = KINDS.get(type(part))
    own = None if kind is None else _own(part, _PARTS[kind])
    return None if own is None else {"part_kind": kind, **own}


def _own(message: Any, known: _Known) -> dict[str, Any] | None:
    """Return the fields to keep; None if one of them is unknown or needs to be dumped."""
    kept: dict[str, Any] = {}
    for name, value in vars(message).items():
        if value is None or name in known.apart:
            continue
        if name not in known.texts:
            return None
        kept[name] = value
    return kept
