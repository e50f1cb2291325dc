"""Converts exceptions of model calls to failures: the cause, whether to retry, and when.

The text says whether the key, the request or the provider is at fault. It contains neither a key nor parts of the
request.
"""

import json
from http import HTTPStatus

from pydantic_ai.exceptions import (
    ContentFilterError,
    IncompleteToolCall,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    ModelTimeoutError,
    OutputTokenLimitExceeded,
    UserError,
)

from runtime.core.enums import FailureCause
from runtime.core.limits import plain
from runtime.ports.effects import ModelFailure

# Temporary errors, although the status blames the request.
PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY}

# Too many requests; 529 is Anthropic's code for an overloaded service.
LIMITS = {HTTPStatus.TOO_MANY_REQUESTS, 529}

KEY = {HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.FORBIDDEN}


class NotTheApi(Exception):
    """The answer is an HTML page, so the address is wrong."""


def failure_of(exc: Exception, *, model: str) -> ModelFailure:
    """Return the failure that an exception of a provider's client means. `model` is the configured name."""
    match exc:
        case ModelAPIError():
            return _answered(exc, model)
        case NotTheApi():
            return _setup_failure(
                f"a page answered instead of {model}: look at the provider's address"
            )
        case ContentFilterError():
            return _request_failure(f"{model} filtered its answer: the request is at fault")
        case IncompleteToolCall() | OutputTokenLimitExceeded():
            return _request_failure(f"{model} ran into its limit of tokens before it was done")
        case UserError():
            return _request_failure(plain(f"the request does not fit {model}: {exc}"))
        case _:
            # An unknown error comes from the provider's answer, and the next answer may be better.
            kind = type(exc).__name__
            error = f"the answer of {model} could not be read ({kind}): the provider is at fault"
            return ModelFailure(error=error, retryable=True)


def provider_text(exc: Exception) -> str:
    """Return the provider's error text, which may quote the request; nothing if it may quote the key."""
    if not isinstance(exc, ModelAPIError) or exc.body is None or _refuses_key(exc):
        return ""
    error = exc.body.get("error", exc.body) if isinstance(exc.body, dict) else exc.body
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else json.dumps(exc.body, default=str)


def too_slow(model: str, deadline: float) -> ModelFailure:
    """Return the failure of a call without a reply before its deadline."""
    return _late_failure(f"{model} did not answer within {deadline:g} s")


def cut_off(model: str) -> ModelFailure:
    """Return the failure of a stream that ended before its reply was complete."""
    error = f"the reply of {model} broke off: the provider or the network is at fault"
    return ModelFailure(error=error, retryable=True, cause=FailureCause.NETWORK)


def not_asked(model: str, seconds: float) -> ModelFailure:
    """Return the failure of a call that was not made, because the provider wants no request for so long."""
    return ModelFailure(
        error=f"{model} was not asked: its provider wants fewer requests",
        retryable=True,
        retry_after=seconds,
        cause=FailureCause.LIMIT,
    )


def ended(model: str) -> ModelFailure:
    """Return the failure of a call that its caller ended."""
    return ModelFailure(
        error=f"the call of {model} was ended before it answered", cause=FailureCause.REQUEST
    )


def _answered(exc: ModelAPIError, model: str) -> ModelFailure:
    status = exc.status_code if isinstance(exc, ModelHTTPError) else None
    said = "" if status is None else f" (status {status})"
    if _refuses_key(exc):
        return _wrong_key(model, said)
    match exc:
        case ModelTimeoutError():
            return _late_failure(f"{model} did not answer in time")
        case ModelConnectionError():
            return ModelFailure(
                error=f"the connection to {model} failed: the provider or the network is at fault",
                retryable=True,
                cause=FailureCause.NETWORK,
            )
        case ModelContextWindowExceededError():
            return _request_failure(f"the conversation is too long for {model}{said}")
        case ModelQuotaExceededError():
            return _setup_failure(f"the quota of the key for {model} is used up{said}")
        case ModelNotFoundError():
            return _setup_failure(
                f"there is no {model} there{said}: look at the name of the model and the provider's address"
            )
    if status in LIMITS:
        error = f"{model} asks for fewer requests{said}: too many come from here, or from everybody"
        return ModelFailure(
            error=error, retryable=True, retry_after=exc.retry_after, cause=FailureCause.LIMIT
        )
    if status in PASSING or status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        if status is None and isinstance(exc, ModelRequestRejectedError):
            return _rejected(exc, model, said)
        error = f"{model} is in trouble{said}: the provider is at fault"
        return ModelFailure(error=error, retryable=True, retry_after=exc.retry_after)
    return _rejected(exc, model, said)


def _refuses_key(exc: ModelAPIError) -> bool:
    """Tell whether the provider refused the key (Gemini: with 400), not the quota or the model."""
    if isinstance(exc, ModelQuotaExceededError | ModelNotFoundError):
        return False
    if isinstance(exc, ModelAuthenticationError) or "API_KEY_INVALID" in str(exc.body):
        return True
    return isinstance(exc, ModelHTTPError) and exc.status_code in KEY


def _wrong_key(model: str, said: str) -> ModelFailure:
    return _setup_failure(f"the key for {model} was refused{said}: it is wrong, or may not do this")


def _rejected(exc: ModelAPIError, model: str, said: str) -> ModelFailure:
    """Describe a rejection by the provider's code rather than by its text, which may quote the request."""
    code = exc.provider_error_code or exc.provider_error_type
    why = f", code {code}" if code and code.replace("_", "").isalnum() else ""
    return _request_failure(
        plain(f"{model} rejected the request{said}{why}: the request is at fault")
    )


def _request_failure(error: str) -> ModelFailure:
    """Return a failure that another attempt cannot correct."""
    return ModelFailure(error=error, cause=FailureCause.REQUEST)


def _setup_failure(error: str) -> ModelFailure:
    """Return a failure that an administrator can correct."""
    return ModelFailure(error=error, retryable=True, cause=FailureCause.SETUP)


def _late_failure(error: str) -> ModelFailure:
    return ModelFailure(error=error, retryable=True, cause=FailureCause.TIME)
