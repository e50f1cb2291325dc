"""Decides which replies of a provider are whole, and mends characters that came apart.

Only a whole reply has calls to make or a text that counts. What a provider calls a reason to stop is not limited to
its protocol's list, so any reason that is not known to mean a whole reply means that something is missing.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import ModelResponse, ToolCallPart

from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import is_text, require_json
from runtime.core.values.limits import MAX_TOOL, plain

# Reasons to stop, in small letters with underscores: those of the two protocols, and the same of other servers.
_ANNOUNCES_CALLS = {"tool_calls", "function_call", "tool_use", "tool_call"}
_MEANS_WHOLE = {"stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed"}
_MEANS_FULL = {"length", "max_tokens", "model_context_window_exceeded", "model_length"}
_MAX_REASON = 60  # characters that are shown
_TEXTS = {"model_name", "provider_response_id", "tool_name", "tool_call_id", "id"}


class BrokenOff(Exception):
    """The reply ended without a reason to stop: the stream ended before the reply did."""


@dataclass
class UnusableReply(Exception):
    """The provider sent a reply to its end, but it is not whole.

    `problem` follows the name of the model. `is_cut` says that it was as long as it may be, so that the model can
    reply in fewer tokens. `text` is what the provider sent in place of a reply, if it is not in the reply's parts.
    """

    problem: str
    text: str = ""
    is_cut: bool = False


def require_whole(reply: ModelResponse, *, as_text: bool = False, may_be_cut: bool = False) -> None:
    """Raise BrokenOff or Unusable unless the reply is whole and has a call or, `as_text`, a text.

    It `may_be_cut` where its beginning is of use too.
    """
    details = reply.provider_details or {}
    sent, refusal = str(details.get("finish_reason") or ""), str(details.get("refusal") or "")
    reason, label = sent.lower().replace("-", "_"), plain(sent)[:_MAX_REASON] or "refusal"
    if reply.finish_reason == "content_filter":
        raise UnusableReply(f"refused to answer, or a filter did ({label})", refusal)
    if not reason:
        raise BrokenOff
    if reason in _MEANS_FULL and not may_be_cut:
        problem = f"ran into its limit of tokens, at about {reply.usage.output_tokens} ({label})"
        raise UnusableReply(f"{problem}: raise max_tokens, or ask for less", is_cut=True)
    if reason not in _MEANS_WHOLE | _ANNOUNCES_CALLS | _MEANS_FULL:
        raise UnusableReply(f"stopped before its reply was whole ({label})")
    if reason in _ANNOUNCES_CALLS and not reply.tool_calls:
        raise UnusableReply("announced calls that did not come")
    if not (reply.text or "").strip() and (as_text or not reply.tool_calls):
        raise UnusableReply("replied without " + ("text" if as_text else "text and calls"))


def mend(reply: ModelResponse) -> ModelResponse:
    """Return a reply whose texts can be kept, and whose arguments are JSON that can be kept or a text."""
    mended: ModelResponse = _mend_fields(reply)
    return replace(mended, parts=[_mend_fields(part) for part in reply.parts])


def _mend_fields(message: Any) -> Any:
    """Mend the texts and details of a reply, or of a part of one."""
    fields = {}
    for name, value in vars(message).items():
        text = str(value) if name in _TEXTS and value is not None else value
        if isinstance(text, str | dict) and name != "args":
            fields[name] = _mend(text)
    if isinstance(message, ToolCallPart):
        fields |= {"args": _mend_args(message.args), "tool_name": fields["tool_name"][:MAX_TOOL]}
    changed = {name: value for name, value in fields.items() if value is not getattr(message, name)}
    return replace(message, **changed) if changed else message


def _mend_args(args: Any) -> Any:
    """Mend arguments. Blank text and null mean none; an object that cannot be kept becomes a text, which is refused."""
    text = _mend_text(args) if isinstance(args, str) else None
    if text is not None and not text.strip():
        return {}
    try:
        value = args if text is None else json.loads(text)
        mended = _mend(value)
        require_json(mended)
    except (ValueError, RecursionError, NotJson):
        return json.dumps(args) if text is None else text
    if mended is None:
        return {}
    if mended is value:
        return text if text is not None else args
    return mended if isinstance(mended, dict) else json.dumps(mended)


def _mend(value: Any) -> Any:
    match value:
        case str():
            return _mend_text(value)
        case list():
            mended: Any = [_mend(item) for item in value]
        case dict():
            mended = {_mend(name): _mend(item) for name, item in value.items()}
        case _:
            return value
    return value if mended == value else mended


def _mend_text(text: str) -> str:
    """Join the halves of characters that came apart. Replace NUL, and halves that are alone."""
    if is_text(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\x00", "\ufffd")
