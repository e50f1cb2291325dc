"""Stores a model's reply without the data that its event repeats, and restores it.

Only fields that the provider sent are stored: no empty or default fields, and no ids made up by the client. Text,
calls and arguments are in the event of the reply. They are restored from the frame's messages and calls, character by
character. A reply of an earlier release is stored whole, and stays unchanged.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from agents.sdk.spec import FINAL_ANSWER
from runtime.core.continuation import Call
from runtime.core.events import Proposal

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # of a message whose time is in its entry

_COUNTED = frozenset({"input_tokens", "output_tokens"})  # the event has them
_MADE_UP = "pyd_ai_"  # how the client begins the id of a call that the provider gave none
_LOCAL = {"timestamp", "kind"}  # made by the client; the entry has a time

# How the arguments were written as text, if writing them in this form gives exactly that text.
_FORMS: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":"), "ensure_ascii": False},
    "spaced": {"ensure_ascii": False},
    "compact-ascii": {"separators": (",", ":")},
    "spaced-ascii": {},
}
_REPLIES: TypeAdapter[list[ModelResponse]] = TypeAdapter(
    list[ModelResponse], config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
)


def stored(
    response: ModelResponse,
    text: str,
    calls: Sequence[Proposal],
    output: dict[str, Any] | None,
) -> tuple[dict[str, Any], bool]:
    """Return the reply without the parts in `text`, `calls` and `output`, and whether `output` is left out."""
    reply = _dumped(response)
    if reply.get("state") == "complete":
        del reply["state"]
    kept_output = False
    number = 0
    for part, kept in zip(response.parts, reply["parts"], strict=True):
        if isinstance(part, TextPart) and part.content == text:
            kept.pop("content", None)
        if not isinstance(part, ToolCallPart):
            continue
        if part.tool_call_id.startswith(_MADE_UP):
            kept.pop("tool_call_id", None)
        if output is not None:
            kept_output = _omit(kept, part, output)
        elif number < len(calls):
            _omit(kept, part, calls[number].args)
        number += 1
    return reply, kept_output


def _dumped(response: ModelResponse) -> dict[str, Any]:
    """Dump a reply without nulls, its time and its tokens.

    Raise PydanticSerializationError for a field of another type, which could not be read again.
    """
    omitted = _LOCAL if _is_usage_stored(response.usage) else _LOCAL | {"usage"}
    reply: dict[str, Any] = _REPLIES.dump_python(
        [response], mode="json", exclude={"__all__": omitted}, exclude_none=True, warnings="error"
    )[0]
    if "usage" in reply:
        usage = reply["usage"].items()
        reply["usage"] = {name: n for name, n in usage if n and name not in _COUNTED}
    return reply


def _is_usage_stored(usage: RequestUsage) -> bool:
    """Say whether a usage has more than the counts of its event. To dump one costs more than all the rest."""
    counts = vars(usage).items()
    rest = [name for name, n in counts if (type(n) is not int if name in _COUNTED else n)]
    return bool(rest)


def read(message: dict[str, Any], calls: Mapping[str, Call]) -> ModelResponse:
    """Restore the whole reply of a frame's message; `calls` has those of the frame. Raise ValidationError."""
    return _validated({**message["reply"], "parts": _parts(message, calls)})


def _validated(reply: dict[str, Any]) -> ModelResponse:
    (found,) = _REPLIES.validate_python([{"timestamp": NO_TIME, **reply}])
    return found


def whole(
    messages: Sequence[dict[str, Any]], calls: tuple[Call, ...]
) -> tuple[dict[str, Any], ...]:
    """Return the messages with every reply restored. `calls` are the calls of their frame."""
    made = calls_of(messages, calls)
    return tuple(
        {**message, "reply": {**message["reply"], "parts": _parts(message, made)}}
        if message["role"] == "model"
        else message
        for message in messages
    )


def calls_of(messages: Sequence[dict[str, Any]], calls: tuple[Call, ...]) -> dict[str, Call]:
    """Look up the calls of these messages, which are the last of their frame, among all of it."""
    wanted = {one for message in messages for one in message.get("calls", ())}
    found: dict[str, Call] = {}
    for call in reversed(calls):  # those of the last replies are at the end
        if len(found) == len(wanted):
            break
        if call.id in wanted:
            found[call.id] = call
    return found


def _omit(kept: dict[str, Any], part: ToolCallPart, args: Any) -> bool:
    """Drop tool and arguments of a call whose arguments are `args`, if they can be made of these again."""
    form = _form(part.args, args)
    if form is None:
        return False
    for name in ("args", "tool_name"):
        kept.pop(name, None)
    if form:
        kept["args_as"] = form
    return True


def _form(given: Any, args: Any) -> str | None:
    """Return an empty text if `given` are these arguments, the form if it is their text, None if it is neither."""
    if given is args or (not given and args == {}):
        return ""
    if not isinstance(given, str):
        return "" if json.dumps(given) == json.dumps(args) else None
    written = (name for name, form in _FORMS.items() if json.dumps(args, **form) == given)
    return next(written, None)


def _parts(message: dict[str, Any], calls: Mapping[str, Call]) -> list[dict[str, Any]]:
    """Return the parts of a reply, filled in from its message and calls."""
    parts: list[dict[str, Any]] = []
    ids = iter(message["calls"])
    for part in message["reply"]["parts"]:
        kind = part["part_kind"]
        if kind == "tool-call":
            parts.append(_called(part, next(ids, None), message, calls))
        elif kind == "text" and "content" not in part:
            parts.append({**part, "content": message["text"]})
        else:
            parts.append(part)
    return parts


def _called(
    part: dict[str, Any], name: str | None, message: dict[str, Any], calls: Mapping[str, Call]
) -> dict[str, Any]:
    filled = {"tool_call_id": name.replace(".", "-") if name else FINAL_ANSWER, **part}
    if "tool_name" in part:
        return filled
    if name is None:
        tool, args = FINAL_ANSWER, message["output"]
    elif name in calls:
        tool, args = calls[name].tool, calls[name].proposed
    else:
        raise ValueError(f"a reply has the call {name}, and its frame does not")
    form = filled.pop("args_as", None)
    filled["tool_name"] = tool
    filled["args"] = json.dumps(args, **_FORMS[form]) if form else args
    return filled
