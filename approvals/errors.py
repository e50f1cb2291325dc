"""What this room refuses: a door needs only `status`, `code`, `detail` and `extra`.

Two refusals are not here: `runtime.ports.Forbidden` (403) is shared with the runtime's doors, and
`runtime.ports.NotConfirmed` is between the gatekeeper and the engine.
"""

from typing import ClassVar
from uuid import UUID


class ApprovalError(Exception):
    """The base of the refusals of this room; never raised itself."""

    status: ClassVar[int]
    code: ClassVar[str]

    def __init__(self, detail: str, **extra: str | None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra


class NotFound(ApprovalError):
    """There is no such thing, or the actor may not know that there is."""

    status = 404
    code = "not_found"

    def __init__(self) -> None:
        super().__init__("There is no such approval.")


class AlreadyDecided(ApprovalError):
    """Somebody was first; `decided_by` is their name, None if nobody decided."""

    status = 409
    code = "already_decided"

    def __init__(self, decided_by: str | None) -> None:
        who = f"by {decided_by}" if decided_by else "without a decision"
        super().__init__(f"This approval was already closed {who}.", decided_by=decided_by)
        self.decided_by = decided_by


class DigestMismatch(ApprovalError):
    """The decider saw something else than what the request says now."""

    status = 409
    code = "digest"

    def __init__(self) -> None:
        super().__init__("The request is not the one you saw. Read it again before deciding.")


class Invalid(ApprovalError):
    """A value cannot be accepted; `field` names it."""

    status = 422
    code = "invalid"

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail, field=field)
        self.field = field


class BrokenChain(Exception):
    """A run's audit rows are not what was written: `seq` is the first that does not hold."""

    def __init__(self, run: UUID, seq: int, why: str) -> None:
        super().__init__(f"audit row {seq} of run {run}: {why}")
        self.run = run
        self.seq = seq
        self.why = why
