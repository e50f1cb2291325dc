"""Defines the errors of approvals. The API and the pages use only their `status`, `code`, `detail` and `extra`.

Three are defined elsewhere: `runtime.errors.Forbidden` (403) and `runtime.errors.InvalidInput` (422), which the runtime
raises too, and `runtime.ports.approvals.NotConfirmed`, which the adapter raises to the engine.
"""

from datetime import UTC, datetime
from uuid import UUID

from runtime.core.values.limits import MAX_INQUIRIES
from runtime.errors import RequestError


class ApprovalError(RequestError):
    """The base of the errors of approvals; never raised itself."""


class Missing(ApprovalError):
    """There is no such object, or the actor may not read it; never raised itself."""

    status, code = 404, "not_found"


class NotFound(Missing):
    """There is no such approval."""  # or the actor may not read it


class UnknownFactor(Missing):
    """There is no such second factor."""


class AlreadyClosed(ApprovalError):
    """The request is not open any more; never raised itself."""


class AlreadyDecided(AlreadyClosed):
    """Another decision was first; `decided_by` names its reviewer, None if the request closed without one."""

    status, code = 409, "already_decided"

    def __init__(self, decided_by: str | None) -> None:
        who = f"by {decided_by}" if decided_by else "without a decision"
        super().__init__(f"This approval was already closed {who}.", decided_by=decided_by)
        self.decided_by = decided_by


class AlreadyVoted(ApprovalError):
    """The person, or the `deputy` in their place, has approved this request, which waits for other people."""

    status, code = 409, "already_voted"

    def __init__(self, person: str, deputy: str | None = None) -> None:
        voter = f"{deputy}, in the place of {person}," if deputy not in (None, person) else person
        super().__init__(
            f"{voter} has already approved this request. Another person must approve it."
        )


class AlreadyClaimed(ApprovalError):
    """Another person, `claimed_by`, looks at the request. It can be decided all the same."""

    status, code = 409, "claimed"

    def __init__(self, claimed_by: str) -> None:
        super().__init__(
            f"{claimed_by or 'Another person'} is looking at this request. You may still decide it.",
            claimed_by=claimed_by or None,
        )
        self.claimed_by = claimed_by


class AlreadyCancelled(AlreadyClosed):
    """The run was cancelled first; `cancelled_by` names the person, None if the engine closed the gate."""

    status, code = 409, "cancelled"

    def __init__(self, cancelled_by: str | None) -> None:
        who = f" by {cancelled_by}" if cancelled_by else ""
        super().__init__(f"This approval was already cancelled{who}.", cancelled_by=cancelled_by)
        self.cancelled_by = cancelled_by


class Expired(AlreadyClosed):
    """The approval expired: the call never starts."""

    status, code = 410, "expired"

    def __init__(self, expires_at: datetime) -> None:
        super().__init__(
            f"This approval expired at {expires_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
            expires_at=expires_at.isoformat(),
        )
        self.expires_at = expires_at


class TooEarly(ApprovalError):
    """The first start of a call in doubt may still be running until `not_before`."""

    status, code = 409, "too_early"

    def __init__(self, not_before: datetime) -> None:
        super().__init__(
            "The first start may still be running. Run the call again after"
            f" {not_before.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
            not_before=not_before.isoformat(),
        )
        self.not_before = not_before


class NotDecided(ApprovalError):
    """This approval has no decision to undo."""

    status, code = 409, "not_decided"


class TooLate(ApprovalError):
    """This decision has taken effect and can no longer be undone."""

    status, code = 410, "too_late"


class DigestMismatch(ApprovalError):
    """The request has changed since you saw it. Read it again before deciding."""

    status, code = 409, "digest"


class TamperedWith(ApprovalError):
    """The stored request was changed after it was opened: its digests or its MAC do not verify."""

    status, code = 409, "unverified"

    def __init__(self, problem: str) -> None:
        super().__init__(f"This request was tampered with and cannot be decided: {problem}.")


class NotShown(ApprovalError):
    """No page can show everything that led to the call, so it is not started."""

    status, code = 409, "not_shown"


class NotTogether(ApprovalError):
    """The request is not decided together with others; it is decided on its own page."""

    status, code = 409, "not_together"


class TooManyInquiries(ApprovalError):
    """The agent has been asked as often as it may be about one call."""

    status, code = 409, "too_many_questions"

    def __init__(self) -> None:
        super().__init__(
            f"The agent was asked {MAX_INQUIRIES} times about this call, which is the limit. Decide it, or request"
            " changes."
        )


class UnknownPerson(Missing):
    """No person has this username."""

    def __init__(self, username: str) -> None:
        super().__init__(f"There is no person {username}.")


class UnknownToken(Missing):
    """No token has this public id, or it belongs to another person."""

    def __init__(self, public_id: str) -> None:
        super().__init__(f"There is no token {public_id}.")


class LinkOver(Missing):
    """This link is not valid any more. Ask an admin for a new one."""


class LastAdmin(ApprovalError):
    """The change would leave the installation without an admin."""

    status, code = 409, "guarded"


class NotConfirmable(ApprovalError):
    """The right has changed since it was shown, or this admin is not independent of its giver."""

    status, code = 409, "not_confirmable"


class LogBroken(Exception):
    """The stored acts on a subject are not those that were signed."""


class AllowanceBroken(LogBroken):
    """The stored acts on an allowance are not those that were made."""


class PolicyBroken(ApprovalError, LogBroken):
    """The stored acts on policies are not those that were signed."""

    status, code = 409, "policy_broken"


class PromptBroken(ApprovalError, LogBroken):
    """The stored acts on a prompt are not those that were signed."""

    status, code = 409, "prompt_broken"


class PolicyRefused(ApprovalError):
    """The change of the policy is not allowed, or not to this person."""

    status, code = 409, "policy_refused"


class PromptRefused(ApprovalError):
    """The change of the prompt is not allowed, or not to this person."""

    status, code = 409, "prompt_refused"


class UnknownPrompt(Missing):
    """There is no such version of a prompt."""  # or no such prompt


class UnknownAllowance(Missing):
    """There is no such allowance."""  # or the actor may not read it


class AllowanceRefused(ApprovalError):
    """The act on the allowance is not allowed, or not any more."""

    status, code = 409, "allowance_refused"


class UnknownInstance(Missing):
    """There is no such instance, or it is not the actor's."""


class UnknownChannel(Missing):
    """The person has no such channel of notices."""


class UnknownSubscription(Missing):
    """There is no such subscription, or it has no such message."""


class ProtocolRefusal(Exception):
    """The base of refusals that only agents outside receive; never raised itself. The docstring is the message."""

    status: int
    code: str

    def __init_subclass__(cls, *, code: str, status: int = 409) -> None:
        cls.status, cls.code = status, code

    def __init__(self) -> None:
        super().__init__((type(self).__doc__ or "").strip())


class InstanceDeleted(ProtocolRefusal, code="instance_deleted"):
    """The instance that was created with this key was deleted."""


class IdempotencyConflict(ProtocolRefusal, code="idempotency_conflict"):
    """This idempotency key was used with other fields."""


class WebhookVerificationFailed(ProtocolRefusal, code="webhook_verification_failed", status=422):
    """The webhook did not answer the verification with its challenge."""


class AlreadyTerminal(ProtocolRefusal, code="already_terminal"):
    """The request is decided or expired."""


class NotApproved(ProtocolRefusal, code="not_approved"):
    """The request is not approved, or its call may not start now."""


class ApprovalExpired(ProtocolRefusal, code="approval_expired"):
    """The approval was not used in time."""


class AlreadyUsed(ProtocolRefusal, code="already_consumed"):
    """The approval was used before."""


class NotUsed(ProtocolRefusal, code="not_consumed"):
    """The approval was not used, so there is no outcome to report."""


class OutcomeConflict(ProtocolRefusal, code="outcome_conflict"):
    """Another outcome was reported before."""


class NotReady(ProtocolRefusal, code="not_ready", status=503):
    """The run has not received its decision yet: try again."""


class TooManyPending(ProtocolRefusal, code="too_many_pending", status=429):
    """Too many requests of this instance wait for people: try again later."""


class BrokenChain(Exception):
    """A run's audit rows were changed: `seq` is the first that does not verify."""

    def __init__(self, run: UUID, seq: int, problem: str) -> None:
        super().__init__(f"audit row {seq} of run {run}: {problem}")
        self.run = run
        self.seq = seq
        self.problem = problem


class NotSignedIn(ApprovalError):
    """An OpenID provider did not sign this person in, or not into an account here."""

    status, code = 403, "not_signed_in"
