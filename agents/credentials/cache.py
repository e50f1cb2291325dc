"""Gives calls their credentials, and keeps tokens in the memory of this process until they expire."""

import time
from collections.abc import Iterable

from agents.credentials.providers import Credential, Secret
from agents.errors import CredentialMissing, NotDone
from runtime.core.values.enums import FailureCause

# Threads share it without a lock: two that fetch at once keep the later token.
_tokens: dict[Credential, tuple[str, float]] = {}


def resolve(
    credentials: Iterable[Credential], seconds: float, *, anew: bool = False
) -> dict[str, str]:
    """Return the secret of each credential by name. With `anew` none comes from memory. Raise like `fetch`."""
    return {credential.name: _secret(credential, seconds, anew) for credential in credentials}


def forget() -> None:
    """Forget every token."""
    _tokens.clear()


def _fetch(credential: Credential, seconds: float) -> Secret:
    """Fetch the secret. Any other error may quote one, so it becomes NotDone with its type alone."""
    try:
        return credential.fetch(seconds)
    except (CredentialMissing, NotDone):
        raise
    except Exception as exc:
        reason = f"the credential {credential.name} cannot be fetched: {type(exc).__name__}"
        raise NotDone(reason, cause=FailureCause.SETUP) from None


def _secret(credential: Credential, seconds: float, anew: bool) -> str:
    value, until = _tokens.get(credential, ("", 0.0))
    if not anew and time.monotonic() < until:
        return value
    began, secret = time.monotonic(), _fetch(credential, seconds)
    _tokens.pop(credential, None)
    if secret.seconds > 0:
        _tokens[credential] = (secret.value, began + secret.seconds)
    return secret.value
