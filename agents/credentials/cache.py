"""Gives calls their credentials, and keeps tokens in the memory of this process until they expire."""

import time
from collections.abc import Iterable

from agents.credentials.providers import Credential, Secret
from agents.errors import CredentialMissing, NotDone
from runtime.core.enums import FailureCause

# Threads share it without a lock: two that fetch at once keep the later token.
_known: dict[Credential, tuple[str, float]] = {}


def resolve(
    credentials: Iterable[Credential], seconds: float, *, anew: bool = False
) -> dict[str, str]:
    """Return the secret of each credential by name, none from memory with `anew`. Raise as `fetch`."""
    return {one.name: _secret(one, seconds, anew) for one in credentials}


def forget() -> None:
    """Forget every token."""
    _known.clear()


def _fetched(credential: Credential, seconds: float) -> Secret:
    """Fetch the secret. Any other error may quote one, so it becomes NotDone with its type alone."""
    try:
        return credential.fetch(seconds)
    except (CredentialMissing, NotDone):
        raise
    except Exception as exc:
        why = f"the credential {credential.name} cannot be fetched: {type(exc).__name__}"
        raise NotDone(why, cause=FailureCause.SETUP) from None


def _secret(credential: Credential, seconds: float, anew: bool) -> str:
    value, until = _known.get(credential, ("", 0.0))
    if not anew and time.monotonic() < until:
        return value
    began, found = time.monotonic(), _fetched(credential, seconds)
    _known.pop(credential, None)
    if found.seconds > 0:
        _known[credential] = (found.value, began + found.seconds)
    return found.value
