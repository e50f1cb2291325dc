"""What an exception of a model call means: whose fault it is, whether another attempt can help, and when.

The text names the key, the request or the provider as the one at fault, and holds neither a key nor what
the request said.
"""

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

from agents.wording import plain
from runtime.ports import ModelFault

# A matter of time, although the status says the request is at fault.
PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY}

KEY = {HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.FORBIDDEN}


def fault_of(exc: Exception, *, model: str) -> ModelFault:
    """The fault behind whatever a provider's client or its answer raised; `model` as it is configured."""
    match exc:
        case ModelAPIError():
            return _answered(exc, model)
        case ContentFilterError():
            return ModelFault(error=f"{model} filtered its answer: the request is at fault")
        case IncompleteToolCall() | OutputTokenLimitExceeded():
            return ModelFault(error=f"{model} ran into its limit of tokens before it was done")
        case UserError():
            return ModelFault(error=plain(f"the request does not fit {model}: {exc}"))
        case _:
            # Whatever it is, it came of what the provider sent, and the next answer may be better.
            kind = type(exc).__name__
            error = f"the answer of {model} could not be read ({kind}): the provider is at fault"
            return ModelFault(error=error, again=True)


def too_slow(model: str, deadline: float) -> ModelFault:
    return ModelFault(error=f"{model} did not answer within {deadline:g} s", again=True)


def _answered(exc: ModelAPIError, model: str) -> ModelFault:
    status = exc.status_code if isinstance(exc, ModelHTTPError) else None
    said = "" if status is None else f" (status {status})"
    match exc:
        case ModelTimeoutError():
            return ModelFault(error=f"{model} did not answer in time", again=True)
        case ModelConnectionError():
            return ModelFault(
                error=f"the connection to {model} failed: the provider or the network is at fault",
                again=True,
            )
        case ModelContextWindowExceededError():
            return ModelFault(error=f"the conversation is too long for {model}{said}")
        case ModelQuotaExceededError():
            return ModelFault(error=f"the quota of the key for {model} is used up{said}")
        case ModelNotFoundError():
            return ModelFault(
                error=f"there is no {model} there{said}: look at ABEYANCE_MODEL and the address"
            )
        case ModelAuthenticationError():
            return _wrong_key(model, said)
    if status in KEY:
        return _wrong_key(model, said)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        error = f"{model} asks for fewer requests{said}"
        return ModelFault(error=error, again=True, after=exc.retry_after)
    if status in PASSING or status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        if status is None and isinstance(exc, ModelRequestRejectedError):
            return _rejected(exc, model, said)
        error = f"{model} is in trouble{said}: the provider is at fault"
        return ModelFault(error=error, again=True, after=exc.retry_after)
    return _rejected(exc, model, said)


def _wrong_key(model: str, said: str) -> ModelFault:
    return ModelFault(
        error=f"the key for {model} was refused{said}: it is wrong, or may not do this"
    )


def _rejected(exc: ModelAPIError, model: str, said: str) -> ModelFault:
    """The provider's code says more than its text, which may quote the request."""
    code = exc.provider_error_code or exc.provider_error_type
    why = f", code {code}" if code and code.replace("_", "").isalnum() else ""
    return ModelFault(
        error=plain(f"{model} rejected the request{said}{why}: the request is at fault")
    )
