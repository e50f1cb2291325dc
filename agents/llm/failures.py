"""Converts exceptions of model calls to failures: the cause, whether to retry, and when.

The text says whether the key, the request or the provider is at fault. It contains neither a key nor parts of the
request.
"""

import json
from http import HTTPStatus

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    ModelTimeoutError,
    UserError,
)

from agents.llm.whole_replies import BrokenOff, Unusable
from runtime.core.enums import FailureCause
from runtime.core.limits import plain
from runtime.ports.effects import ModelFailure

# Temporary errors, although the status blames the request.
PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY}

# Too many requests; 529 is Anthropic's code for an overloaded service.
LIMITS = {HTTPStatus.TOO_MANY_REQUESTS, 529}

KEY = {HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.FORBIDDEN}

_PROBLEMS: dict[type[ModelAPIError], tuple[str, FailureCause]] = {
    ModelTimeoutError: ("{model} did not answer in time", FailureCause.TIME),
    ModelConnectionError: (
        "the connection to {model} failed: the provider or the network is at fault",
        FailureCause.NETWORK,
    ),
    ModelContextWindowExceededError: (
        "the conversation is too long for {model}{status}",
        FailureCause.REQUEST,
    ),
    ModelQuotaExceededError: (
        "the quota of the key for {model} is used up{status}",
        FailureCause.SETUP,
    ),
    ModelNotFoundError: (
        "there is no {model} there{status}: look at the name of the model and the provider's address",
        FailureCause.SETUP,
    ),
}


class NotTheApi(Exception):
    """The answer is an HTML page, so the address is wrong."""


def make_failure(error: str, cause: FailureCause, retry_after: float | None = None) -> ModelFailure:
    """Return a failure. Another attempt can correct any but a wrong request; an administrator corrects a setup."""
    return ModelFailure(
        error=error,
        retryable=cause is not FailureCause.REQUEST,
        retry_after=retry_after,
        cause=cause,
    )


def failure_of(exc: Exception, *, model: str) -> ModelFailure:
    """Return the failure that an exception of a provider's client means. `model` is the configured name."""
    match exc:
        case ModelAPIError():
            return _answered(exc, model)
        case BrokenOff():
            error = f"the reply of {model} broke off: the provider or the network is at fault"
            return make_failure(error, FailureCause.NETWORK)
        case Unusable():
            return make_failure(plain(f"{model} {exc.problem}"), FailureCause.REPLY)
        case NotTheApi():
            error = f"a page answered instead of {model}: look at the provider's address"
            return make_failure(error, FailureCause.SETUP)
        case UserError():
            error = plain(f"the request does not fit {model}: {exc}")
            return make_failure(error, FailureCause.REQUEST)
        case _:
            # An unknown error comes from the provider's answer, and the next answer may be better.
            kind = type(exc).__name__
            error = f"the answer of {model} could not be read ({kind}): the provider is at fault"
            return make_failure(error, FailureCause.REPLY)


def provider_text(exc: Exception) -> str:
    """Return the provider's error text, which may quote the request; nothing if it may quote the key."""
    if not isinstance(exc, ModelAPIError) or exc.body is None or _refuses_key(exc):
        return ""
    error = exc.body.get("error", exc.body) if isinstance(exc.body, dict) else exc.body
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else json.dumps(exc.body, default=str)


def _answered(exc: ModelAPIError, model: str) -> ModelFailure:
    status = exc.status_code if isinstance(exc, ModelHTTPError) else None
    suffix = "" if status is None else f" (status {status})"
    if _refuses_key(exc):
        error = f"the key for {model} was refused{suffix}: it is wrong, or may not do this"
        return make_failure(error, FailureCause.SETUP)
    for kind, (problem, cause) in _PROBLEMS.items():
        if isinstance(exc, kind):
            return make_failure(problem.format(model=model, status=suffix), cause)
    if status in LIMITS:
        error = (
            f"{model} asks for fewer requests{suffix}: too many come from here, or from everybody"
        )
        return make_failure(error, FailureCause.LIMIT, exc.retry_after)
    is_passing = status in PASSING or status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if is_passing and not (status is None and isinstance(exc, ModelRequestRejectedError)):
        error = f"{model} is in trouble{suffix}: the provider is at fault"
        return make_failure(error, FailureCause.PROVIDER, exc.retry_after)
    # By the provider's code rather than by its text, which may quote the request.
    code = exc.provider_error_code or exc.provider_error_type
    code_suffix = f", code {code}" if code and code.replace("_", "").isalnum() else ""
    error = plain(f"{model} rejected the request{suffix}{code_suffix}: the request is at fault")
    return make_failure(error, FailureCause.REQUEST)


def _refuses_key(exc: ModelAPIError) -> bool:
    """Tell whether the provider refused the key (Gemini: with 400), not the quota or the model."""
    if isinstance(exc, ModelQuotaExceededError | ModelNotFoundError):
        return False
    if isinstance(exc, ModelAuthenticationError) or "API_KEY_INVALID" in str(exc.body):
        return True
    return isinstance(exc, ModelHTTPError) and exc.status_code in KEY
