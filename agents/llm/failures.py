"""Converts exceptions of model calls to failures: the cause, whether to retry, and when.

The text says whether the key, the request or the provider is at fault. It contains neither a key nor parts of the
request.

Only a whole reply has calls to make or a text that counts. What a provider calls a reason to stop is not limited to its
protocol's list, so any reason that is not known to mean a whole reply means that something is missing.
"""

import json
from dataclasses import dataclass, replace
from http import HTTPStatus
from types import UnionType
from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.messages import ModelResponse, ToolCallPart

from runtime.core.values.enums import FailureCause
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import is_text, require_json
from runtime.core.values.limits import MAX_TOOL
from runtime.core.values.texts import clean_text
from runtime.ports.effects import ModelFailure

# Reasons to stop, in small letters with underscores: those of the two protocols, and the same of other servers.
_ANNOUNCES_CALLS = {"tool_calls", "function_call", "tool_use", "tool_call"}
_MEANS_WHOLE = {"stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed"}
_MEANS_FULL = {"length", "max_tokens", "model_context_window_exceeded", "model_length"}
_MAX_REASON = 60  # characters that are shown
_TEXTS = {"model_name", "provider_response_id", "tool_name", "tool_call_id", "id"}
# Temporary errors, although the status blames the request.
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY}


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


class NotTheApi(Exception):
    """The answer is an HTML page or a redirect, so the address is wrong."""


# The first type that fits counts.
_PROBLEMS: dict[FailureCause, dict[type[Exception] | UnionType, str]] = {
    FailureCause.SETUP: {
        NotTheApi: "a page or a redirect answered instead of {model}{status}:"
        " look at the provider's address",
        exceptions.ModelAuthenticationError: "the key for {model} was refused{status}: it is wrong, or may not do this",
        exceptions.ModelQuotaExceededError: "the quota of the key for {model} is used up{status}",
        exceptions.ModelNotFoundError: "there is no {model} there{status}:"
        " look at the name of the model and the provider's address",
    },
    FailureCause.LIMIT: {
        exceptions.ModelRateLimitError
        | exceptions.ModelOverloadedError: "{model} asks for fewer requests{status}:"
        " too many come from here, or from everybody",
    },
    FailureCause.TIME: {exceptions.ModelTimeoutError: "{model} did not answer in time"},
    FailureCause.NETWORK: {
        exceptions.ModelConnectionError: "the connection to {model} failed: the provider or the network is at fault",
        BrokenOff: "the reply of {model} broke off: the provider or the network is at fault",
    },
    FailureCause.REQUEST: {
        exceptions.UserError: "the request does not fit {model}: {exc}",
        exceptions.ModelContextWindowExceededError: "the conversation is too long for {model}{status}",
        exceptions.ModelRequestRejectedError: "{model} rejected the request{status}{code}: the request is at fault",
    },
    FailureCause.PROVIDER: {
        exceptions.ModelAPIError: "{model} is in trouble{status}: the provider is at fault"
    },
    FailureCause.REPLY: {
        UnusableReply: "{model} {exc.problem}",
        # An unknown error comes from the provider's answer, and the next answer may be better.
        Exception: "the answer of {model} could not be read ({kind}): the provider is at fault",
    },
}


def require_whole(reply: ModelResponse, *, as_text: bool, may_be_cut: bool) -> None:
    """Raise BrokenOff or Unusable unless the reply is whole and has a call or, `as_text`, a text.

    It `may_be_cut` where its beginning is of use too.
    """
    details = reply.provider_details or {}
    sent, refusal = str(details.get("finish_reason") or ""), str(details.get("refusal") or "")
    reason, label = sent.lower().replace("-", "_"), clean_text(sent)[:_MAX_REASON] or "refusal"
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


def make_failure(error: str, cause: FailureCause, retry_after: float | None = None) -> ModelFailure:
    """Return a failure. Another attempt can correct any but a wrong request; an administrator corrects a setup."""
    can_retry = cause is not FailureCause.REQUEST
    return ModelFailure(error=error, cause=cause, retryable=can_retry, retry_after=retry_after)


def derive_failure(exc: Exception, *, model: str) -> ModelFailure:
    """Return the failure that an exception of a provider's client means. `model` is the configured name."""
    kind: type[Exception] = type(exc)
    # The model layer leaves out the status of a redirect.
    status = getattr(exc, "status_code", getattr(exc.__cause__, "status_code", None))
    if status is not None and 300 <= status < 400:
        kind = NotTheApi
    elif _is_key_refused(exc):
        kind = exceptions.ModelAuthenticationError
    elif (
        type(exc) is exceptions.ModelHTTPError and exc.status_code not in _PASSING
    ):  # a rare status
        kind = exceptions.ModelRequestRejectedError
    problems = ((cause, *row) for cause, texts in _PROBLEMS.items() for row in texts.items())
    cause, text = next((cause, text) for cause, base, text in problems if issubclass(kind, base))
    # By the provider's code rather than by its text, which may quote the request.
    code = getattr(exc, "provider_error_code", "") or getattr(exc, "provider_error_type", "") or ""
    error = text.format(
        model=model,
        status="" if status is None else f" (status {status})",
        code=f", code {code}" if code.replace("_", "").isalnum() else "",
        exc=exc,
        kind=kind.__name__,
    )
    is_busy = cause in (FailureCause.LIMIT, FailureCause.PROVIDER)
    return make_failure(
        clean_text(error), cause, getattr(exc, "retry_after", None) if is_busy else None
    )


def extract_provider_text(exc: Exception) -> str:
    """Return the provider's error text, which may quote the request; nothing if it may quote the key."""
    if not isinstance(exc, exceptions.ModelAPIError) or exc.body is None or _is_key_refused(exc):
        return ""
    error = exc.body.get("error", exc.body) if isinstance(exc.body, dict) else exc.body
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else json.dumps(exc.body, default=str)


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


def _is_key_refused(exc: Exception) -> bool:
    """Say whether the provider refused the key. Gemini does it with 400."""
    body = exc.body if isinstance(exc, exceptions.ModelAPIError) else None
    return isinstance(exc, exceptions.ModelAuthenticationError) or "API_KEY_INVALID" in str(body)
