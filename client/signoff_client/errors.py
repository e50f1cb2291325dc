"""The errors of the client. Each that the server refused has its code, and the field that is wrong."""

from collections.abc import Mapping
from typing import Any, ClassVar


class SignoffError(Exception):
    """The base of all errors of this package."""


class NoAnswer(SignoffError):
    """The server did not answer, or said that it cannot now. The act may have been done if it is not repeatable."""


class NotInTime(SignoffError, TimeoutError):
    """The run did not end within the time that the caller gave."""


class RunNotCompleted(SignoffError):
    """The run ended without a result: it failed or was cancelled, as `status` and `reason` say."""

    def __init__(self, status: str, reason: str | None) -> None:
        super().__init__(f"the run is {status}" + (f": {reason}" if reason else ""))
        self.status = status
        self.reason = reason


class NotApproved(SignoffError):
    """The call must not be made. `status` is `denied`, `expired`, `cancelled`, `consumed` or `error`."""

    def __init__(self, status: str, reason: str, request_id: str | None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.request_id = request_id


class Refusal(SignoffError):
    """The server refused. `facts` are the fields of this code alone, such as `decided_by`."""

    kinds: "ClassVar[dict[int, type[Refusal]]]" = {}  # by the status of the answer

    def __init_subclass__(cls, *, status: int = 0) -> None:
        cls.kinds.setdefault(status, cls)

    def __init__(self, status: int, facts: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(facts.get("code", "error"))
        self.detail = str(facts.get("detail", f"HTTP {status}"))
        self.field: str | None = facts.get("field")
        self.facts = {
            name: value for name, value in facts.items() if name not in ("code", "detail", "field")
        }
        super().__init__(f"{self.field}: {self.detail}" if self.field else self.detail)


class NotAuthenticated(Refusal, status=401):
    """401: there is no token, or it is wrong, revoked or expired."""


class NotPermitted(Refusal, status=403):
    """403: the person or the token lacks the right."""


class NotThere(Refusal, status=404):
    """404: it does not exist, or the person may not read it."""


class NotPossible(Refusal, status=409):
    """409: it cannot be done in this state. `code` says why."""


class DecidedBefore(NotPossible):
    """409: another decision was first. `decided_by` is its reviewer, None if the request closed without one."""

    @property
    def decided_by(self) -> str | None:
        """Return the reviewer."""
        return self.facts.get("decided_by")


class TooLateToDecide(Refusal, status=410):
    """410: the request expired."""


class InvalidField(Refusal, status=422):
    """422: a value cannot be accepted; `field` names it, as a dotted path."""


def make_refusal(status: int, facts: Mapping[str, Any]) -> Refusal:
    """Return the error for an answer of the server."""
    if facts.get("code") == "already_decided":
        return DecidedBefore(status, facts)
    return Refusal.kinds.get(status, Refusal)(status, facts)
