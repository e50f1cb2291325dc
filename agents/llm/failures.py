"""Converts exceptions of model calls to failures: the cause, whether to retry, and when.

The text says whether the key, the request or the provider is at fault. It contains neither a key nor parts of the
request.
"""

import json
from http import HTTPStatus
from types import UnionType

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelTimeoutError,
    UserError,
)

from agents.llm.whole_replies import BrokenOff, UnusableReply
from runtime.core.values.enums import FailureCause
from runtime.core.values.limits import plain
from runtime.ports.effects import ModelFailure

# Temporary errors, although the status blames the request.
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY}


class NotTheApi(Exception):
    """The answer is an HTML page, so the address is wrong."""


# The first type that fits counts.
_PROBLEMS: dict[FailureCause, dict[type[Exception] | UnionType, str]] = {
    FailureCause.SETUP: {
        NotTheApi: "a page answered instead of {model}: look at the provider's address",
        ModelAuthenticationError: "the key for {model} was refused{status}: it is wrong, or may not do this",
        ModelQuotaExceededError: "the quota of the key for {model} is used up{status}",
        ModelNotFoundError: "there is no {model} there{status}:"
        " look at the name of the model and the provider's address",
    },
    FailureCause.LIMIT: {
        ModelRateLimitError | ModelOverloadedError: "{model} asks for fewer requests{status}:"
        " too many come from here, or from everybody",
    },
    FailureCause.TIME: {ModelTimeoutError: "{model} did not answer in time"},
    FailureCause.NETWORK: {
        ModelConnectionError: "the connection to {model} failed: the provider or the network is at fault",
        BrokenOff: "the reply of {model} broke off: the provider or the network is at fault",
    },
    FailureCause.REQUEST: {
        UserError: "the request does not fit {model}: {exc}",
        ModelContextWindowExceededError: "the conversation is too long for {model}{status}",
        ModelRequestRejectedError: "{model} rejected the request{status}{code}: the request is at fault",
    },
    FailureCause.PROVIDER: {
        ModelAPIError: "{model} is in trouble{status}: the provider is at fault"
    },
    FailureCause.REPLY: {
        UnusableReply: "{model} {exc.problem}",
        # An unknown error comes from the provider's answer, and the next answer may be better.
        Exception: "the answer of {model} could not be read ({kind}): the provider is at fault",
    },
}


def make_failure(error: str, cause: FailureCause, retry_after: float | None = None) -> ModelFailure:
    """Return a failure. Another attempt can correct any but a wrong request; an administrator corrects a setup."""
    can_retry = cause is not FailureCause.REQUEST
    return ModelFailure(error=error, cause=cause, retryable=can_retry, retry_after=retry_after)


def failure_of(exc: Exception, *, model: str) -> ModelFailure:
    """Return the failure that an exception of a provider's client means. `model` is the configured name."""
    kind = _kind(exc)
    problems = ((cause, *row) for cause, texts in _PROBLEMS.items() for row in texts.items())
    cause, text = next((cause, text) for cause, base, text in problems if issubclass(kind, base))
    status = getattr(exc, "status_code", None)
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
    return make_failure(plain(error), cause, getattr(exc, "retry_after", None) if is_busy else None)


def _kind(exc: Exception) -> type[Exception]:
    if _refuses_key(exc):
        return ModelAuthenticationError
    if type(exc) is ModelHTTPError and exc.status_code not in _PASSING:  # a rare status
        return ModelRequestRejectedError
    return type(exc)


def provider_text(exc: Exception) -> str:
    """Return the provider's error text, which may quote the request; nothing if it may quote the key."""
    if not isinstance(exc, ModelAPIError) or exc.body is None or _refuses_key(exc):
        return ""
    error = exc.body.get("error", exc.body) if isinstance(exc.body, dict) else exc.body
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else json.dumps(exc.body, default=str)


def _refuses_key(exc: Exception) -> bool:
    """Say whether the provider refused the key. Gemini does it with 400."""
    body = exc.body if isinstance(exc, ModelAPIError) else None
    return isinstance(exc, ModelAuthenticationError) or "API_KEY_INVALID" in str(body)
