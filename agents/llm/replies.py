"""Reads a model's reply for the core, stores it without the data that its event repeats, and restores it.

Only fields that the provider sent are stored: no empty or default fields, and no ids made up by the client. Text,
calls and arguments are in the event of the reply. They are restored from the frame's messages and calls, character by
character. A part that cannot be restored so is stored whole.

The answer of an agent that holds its answers becomes a call. A draft, a thought or a summary can say what the held text
will say, so those texts are sealed. Only the released text is stored as it is, and an answer that is not held.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_jsonable_python

from agents import secrets
from agents.llm.providers import build_usage_counts, compute_cost
from agents.sdk import inputs
from agents.sdk.definitions import ANSWER_ARGUMENT, ANSWERED_TOGETHER
from agents.sdk.scripts import REPEATED
from agents.sdk.spec import FINAL_ANSWER, AgentSpec
from runtime.core.run.continuation import Call, GivenReply
from runtime.core.run.events import Proposal
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import copy_value, is_equal, require_json
from runtime.core.values.limits import MAX_ANSWER
from runtime.keyring import sealing
from runtime.ports.effects import ModelAnswer

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
_DETAILS = ""  # the name for `provider_details`, which no tool has


def convert_provider_reply(
    agent: AgentSpec,
    response: ModelResponse,
    *,
    model: str = "",
    summary: bool = False,
    usage: RequestUsage | None = None,
) -> ModelAnswer:
    """Return the reply of `model` as JSON with the fields the core needs, without checking that it can be journaled.

    A `summary` is text, even if the agent's result is typed. `usage` counts in the place of the reply's own.
    """
    used = usage or response.usage
    text = response.text or ""
    output, calls = None, _build_proposals(agent, response)
    if not summary:
        output, calls = inputs.read_result(agent, calls, text)
    if agent.answer is not None and not summary:
        output, calls = None, build_held_proposals(agent, calls, text, output)
    elif agent.seals_texts and not response.tool_calls:
        calls = seal_texts(calls)
    stored = response
    repeats_token = has_repeated_token(response, text)
    if agent.seals_texts or repeats_token:
        length = MAX_ANSWER if summary else None
        is_answer = not (summary or calls or output is not None or repeats_token)
        stored, text = seal_response(agent, response, text, length, is_answer=is_answer)
    elif agent.keeps_secrets:
        parts = [seal_call(agent, part) for part in response.parts]
        stored = replace(response, parts=parts)
    reply, output_kept = to_stored(stored, text, calls, output)
    is_script = agent.model is not None and model == agent.model_name
    if is_script:
        reply.pop("model_name", None)
    return ModelAnswer(
        reply=reply,
        text=text,
        calls=calls,
        output=output,
        output_kept=output_kept,
        at_once=agent.at_once if calls else 0,
        usage=build_usage_counts(used),
        cost=0 if is_script else compute_cost(response),
        model=model,
    )


def convert_person_reply(agent: AgentSpec, reply: GivenReply) -> ModelAnswer:
    """Read the reply that a person gave in a fork as one of the model. Raise as secrets.open_args."""
    # A text without calls is the answer, which is not sealed again.
    is_sealed = agent.seals_texts and bool(reply.calls)
    text = sealing.open_text(reply.text) if is_sealed else reply.text
    parts: list[Any] = [TextPart(content=text)] if text else []
    for call in reply.calls:
        tool = agent.tool(call.tool)
        args = call.args
        if tool is not None and tool.secret_args:
            args = secrets.open_args(tool, args)
        parts.append(ToolCallPart(tool_name=call.tool, args=args))
    return replace(convert_provider_reply(agent, ModelResponse(parts=parts)), cost=0)


def decode_args(part: ToolCallPart) -> Any:
    """Return the proposed arguments. Text that is not JSON stays text, which admission refuses."""
    if not isinstance(part.args, str):
        return part.args or {}
    try:
        args = json.loads(part.args or "{}")
        require_json(args)
    except (ValueError, RecursionError, NotJson):
        return part.args
    return args


def to_stored(
    response: ModelResponse, text: str, calls: Sequence[Proposal], output: dict[str, Any] | None
) -> tuple[dict[str, Any], bool]:
    """Return the reply without the parts in `text`, `calls` and `output`, and whether `output` is left out."""
    # A usage with no more than the counts of its event is left out: to dump it costs more than all the rest.
    counts = vars(response.usage).items()
    details = [name for name, n in counts if (type(n) is not int if name in _COUNTED else n)]
    omitted = _LOCAL if details else _LOCAL | {"usage"}
    reply: dict[str, Any] = _REPLIES.dump_python(
        [response], mode="json", exclude={"__all__": omitted}, exclude_none=True, warnings="error"
    )[0]
    if reply.get("state") == "complete":
        del reply["state"]
    if "usage" in reply:
        usage = reply["usage"].items()
        reply["usage"] = {name: n for name, n in usage if n and name not in _COUNTED}
    proposals = iter(calls)
    is_left_out = False
    for part, fields in zip(response.parts, reply["parts"], strict=True):
        if isinstance(part, TextPart) and part.content == text:
            fields.pop("content", None)
        elif isinstance(part, ToolCallPart):
            if part.tool_call_id.startswith(_MADE_UP):
                fields.pop("tool_call_id", None)
            # Tool and arguments are left out if they can be made of these again.
            args = next(proposals).args if output is None else output
            form = _find_form(part.args, args)
            is_left_out = form is not None
            if form is not None:
                fields.pop("args", None)
                fields.pop("tool_name", None)
            if form:
                fields["args_as"] = form
    return reply, is_left_out and output is not None


def restore_reply(message: dict[str, Any], calls: Mapping[str, Call]) -> ModelResponse:
    """Restore the reply of a frame's message; `calls` has those of the frame. Raise ValidationError."""
    reply = copy_value(_fill(message, calls))  # a script may change it
    parts = [*map(_plain_part, reply["parts"])]
    if reply.keys() == {"parts"} and None not in parts:
        return ModelResponse(parts=parts, timestamp=NO_TIME)
    return _REPLIES.validate_python([{"timestamp": NO_TIME, **reply}])[0]


def _plain_part(fields: dict[str, Any]) -> Any:
    """Return what `_REPLIES` would make of a part with exactly these fields, in a third of the time; else None."""
    match fields:
        case {"part_kind": "text", "content": str()} if len(fields) == 2:
            return TextPart(**fields)
        case {
            "part_kind": "tool-call",
            "tool_name": str(),
            "args": str() | dict() | None,
            "tool_call_id": str(),
        } if len(fields) == 4:
            return ToolCallPart(**fields)
    return None


def restore_replies(
    messages: Sequence[dict[str, Any]], calls: tuple[Call, ...]
) -> tuple[dict[str, Any], ...]:
    """Return the messages with every reply restored. `calls` are the calls of their frame."""
    by_id = find_calls(messages, calls)
    return tuple(
        {**message, "reply": _fill(message, by_id)} if message["role"] == "model" else message
        for message in messages
    )


def find_calls(messages: Sequence[dict[str, Any]], calls: tuple[Call, ...]) -> dict[str, Call]:
    """Look up the calls of these messages, which are the last of their frame, among all of it."""
    ids = {call_id for message in messages for call_id in message.get("calls", ())}
    by_id: dict[str, Call] = {}
    for call in reversed(calls):  # those of the last replies are at the end
        if len(by_id) == len(ids):
            break
        if call.id in ids:
            by_id[call.id] = call
    return by_id


def build_held_proposals(
    agent: AgentSpec, calls: Sequence[Proposal], text: str, output: dict[str, Any] | None
) -> tuple[Proposal, ...]:
    """Return the calls of a reply, where the answer is a call. One that does not fit is refused with its reason.

    `calls` are those to make, `output` the typed result in a reply without any.
    """
    assert agent.answer is not None  # only such an agent holds its answers
    seal = partial(secrets.seal_args, agent.answer)
    if not calls:
        args = {ANSWER_ARGUMENT: text if output is None else output}
        return (Proposal(tool=FINAL_ANSWER, args=seal(args)),)
    is_alone = len(calls) == 1  # an answer beside other calls is marked, and refused
    return tuple(
        replace(call, args=seal(call.args if is_alone else {ANSWERED_TOGETHER: call.args}))
        if call.tool == FINAL_ANSWER
        else call
        for call in calls
    )


def seal_texts(calls: Sequence[Proposal]) -> tuple[Proposal, ...]:
    """Seal a text in the place of a typed answer, which is refused: it may be any text of the model."""
    return tuple(
        replace(call, args=sealing.seal_args(call.tool, call.args))
        if isinstance(call.args, str)
        else call
        for call in calls
    )


def seal_response(
    agent: AgentSpec, response: ModelResponse, text: str, max_length: int | None, *, is_answer: bool
) -> tuple[ModelResponse, str]:
    """Seal the texts, thoughts, secret arguments and details of a reply. `max_length` is as in `held.sealed_text`.

    A part that is the whole text gets the same token as the text, so that the reply need not repeat it. The text of a
    reply that `is_answer` stays as it is.
    """
    sealed_text = text if is_answer else sealing.seal_held_text(text, max_length)

    def seal_part(part: Any) -> Any:
        match part:
            case TextPart() if is_answer:
                return part
            case TextPart() if part.content == text:
                return replace(part, content=sealed_text)
            case TextPart() | ThinkingPart():
                return replace(part, content=sealing.seal_held_text(part.content))
            case _:
                return seal_call(agent, part)

    parts = [seal_part(_with_details(part, _seal_details)) for part in response.parts]
    return replace(_with_details(response, _seal_details), parts=parts), sealed_text


def seal_call(agent: AgentSpec, part: Any) -> Any:
    """Return a part of a reply; if it is a call, with all arguments sealed as received where one may be secret."""
    if not isinstance(part, ToolCallPart):
        return part
    if (tool := agent.tool(part.tool_name)) is not None:
        return replace(part, args=secrets.seal_reply(tool, part.args))
    if is_misspelt(agent, part.tool_name) or sealing.is_token(part.args):
        return replace(part, args=sealing.seal_args(part.tool_name, part.args))
    return part


def has_repeated_token(response: ModelResponse, text: str) -> bool:
    """Tell whether a model wrote a sealed value, which it would get back opened: a person may have read it in Postgres.

    It is sealed once more, so it is opened to what the model wrote. `text` is that of all its parts.
    """
    for part in response.parts:
        sent = getattr(part, "content", getattr(part, "args", None))
        if isinstance(sent, str | dict) and sealing.MARK in sent and sealing.is_token(sent):
            return True
    return sealing.MARK in text and sealing.is_token(text)


def open_details(message: Any) -> Any:
    """Return a reply, or a part of one, with the details that its provider sent."""
    if getattr(message, "provider_details", None) is None:
        return message
    return _with_details(message, sealing.open_args)


def is_misspelt(agent: AgentSpec, name: str) -> bool:
    """Tell whether a called name is none of an agent with held texts: the arguments may be one of them."""
    is_known = agent.tool(name) or agent.subagent(name) or (name == FINAL_ANSWER and agent.output)
    return agent.seals_texts and not is_known


def open_part(part: Any) -> Any:
    """Return a part of a reply as the provider sent it."""
    if isinstance(part, ToolCallPart):
        args = sealing.open_args(part.tool_name, part.args)
        return part if args is part.args else replace(part, args=args)
    if not isinstance(part, TextPart | ThinkingPart):
        return part
    content = sealing.open_text(part.content)
    return part if content is part.content else replace(part, content=content)


def _build_proposals(agent: AgentSpec, response: ModelResponse) -> tuple[Proposal, ...]:
    """Return the calls in order, not by id: some providers give every call of a reply the same id."""
    proposals: list[Proposal] = []
    unsealed: list[tuple[str, Any]] = []
    for part in response.tool_calls:
        name, args = part.tool_name, decode_args(part)
        tool, call = agent.tool(name), (name, args)
        if tool is not None and tool.secret_args and tool is not agent.answer:
            # The engine finds calls that repeat each other, but sealed arguments never look equal.
            of_tool = (n for n, (other, _) in enumerate(unsealed) if other == name)
            twin = next((n for n in of_tool if is_equal(unsealed[n][1], args)), None)
            args = secrets.seal_args(tool, args) if twin is None else {REPEATED: twin}
        elif is_misspelt(agent, name):
            args = sealing.seal_args(name, args)
        unsealed.append(call)
        proposals.append(Proposal(tool=name, args=args))
    return tuple(proposals)


def _find_form(sent: Any, args: Any) -> str | None:
    """Return an empty text if `sent` are these arguments, the form if it is their text, None if it is neither."""
    if sent is args or (not sent and args == {}):
        return ""
    if not isinstance(sent, str):
        return "" if json.dumps(sent) == json.dumps(args) else None
    return next((name for name, form in _FORMS.items() if json.dumps(args, **form) == sent), None)


def _fill(message: dict[str, Any], calls: Mapping[str, Call]) -> dict[str, Any]:
    """Return a reply whose parts are filled in from its message and calls."""
    parts: list[dict[str, Any]] = []
    ids = iter(message["calls"])
    for part in message["reply"]["parts"]:
        kind = part["part_kind"]
        if kind == "tool-call":
            parts.append(_fill_call(part, next(ids, None), message, calls))
        elif kind == "text" and "content" not in part:
            parts.append({**part, "content": message["text"]})
        else:
            parts.append(part)
    return {**message["reply"], "parts": parts}


def _fill_call(
    part: dict[str, Any], call_id: str | None, message: dict[str, Any], calls: Mapping[str, Call]
) -> dict[str, Any]:
    filled = {"tool_call_id": call_id.replace(".", "-") if call_id else FINAL_ANSWER, **part}
    if "tool_name" in part:
        return filled
    if call_id is None:
        tool, args = FINAL_ANSWER, message["output"]
    elif call_id in calls:
        tool, args = calls[call_id].tool, calls[call_id].proposed
    else:
        raise ValueError(f"a reply has the call {call_id}, and its frame does not")
    form = filled.pop("args_as", None)
    return filled | {"tool_name": tool, "args": json.dumps(args, **_FORMS[form]) if form else args}


def _seal_details(name: str, details: Any) -> dict[str, str]:
    """Seal details as the JSON that is stored: a provider's client puts times in them."""
    return sealing.seal_args(name, to_jsonable_python(details))


def _with_details(message: Any, change: Callable[[str, Any], Any]) -> Any:
    """Change the details of a reply or a part: a provider can repeat there what the model thought."""
    details = getattr(message, "provider_details", None)
    changed = change(_DETAILS, details) if details else details
    return message if changed is details else replace(message, provider_details=changed)
