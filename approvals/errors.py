"""Defines the errors of approvals. The API and the pages use only their `status`, `code`, `detail` and `extra`.

Three are defined elsewhere: `runtime.errors.Forbidden` (403) and `runtime.errors.InvalidInput` (422), which the runtime
raises too, and `runtime.ports.approvals.NotConfirmed`, which the adapter raises to the engine.
"""

from datetime import UTC, datetime
from uuid import UUID

from runtime.core.values.limits import MAX_INQUIRIES
from runtime.errors import InvalidInput, Refusal, RequestError


class ApprovalError(RequestError):
    """The base of the errors of approvals; never raised itself."""


class Missing(ApprovalError, code="not_found", status=404):
    """There is no such object, or the actor may not read it; never raised itself."""


class NotFound(Missing):
    """There is no such approval."""  # or the actor may not read it


class UnknownFactor(Missing):
    """There is no such second factor."""


class AlreadyClosed(ApprovalError):
    """The request is not open any more; never raised itself."""


class AlreadyDecided(AlreadyClosed, code="already_decided"):
    """Another decision was first; `decided_by` names its reviewer, None if the request closed without one."""

    def __init__(self, decided_by: str | None) -> None:
        who = f"by {decided_by}" if decided_by else "without a decision"
        super().__init__(f"This approval was already closed {who}.", decided_by=decided_by)
        self.decided_by = decided_by


class AlreadyVoted(ApprovalError, code="already_voted"):
    """The person, or the `deputy` in their place, has approved this request, which waits for other people."""

    def __init__(self, person: str, deputy: str | None = None) -> None:
        voter = f"{deputy}, in the place of {person}," if deputy not in (None, person) else person
        super().__init__(
            f"{voter} has already approved this request. Another person must approve it."
        )


class AlreadyClaimed(ApprovalError, code="claimed"):
    """Another person, `claimed_by`, looks at the request. It can be decided all the same."""

    def __init__(self, claimed_by: str) -> None:
        super().__init__(
            f"{claimed_by or 'Another person'} is looking at this request. You may still decide it.",
            claimed_by=claimed_by or None,
        )
        self.claimed_by = claimed_by


class AlreadyCancelled(AlreadyClosed, code="cancelled"):
    """The run was cancelled first; `cancelled_by` names the person, None if the engine closed the gate."""

    def __init__(self, cancelled_by: str | None) -> None:
        who = f" by {cancelled_by}" if cancelled_by else ""
        super().__init__(f"This approval was already cancelled{who}.", cancelled_by=cancelled_by)
        self.cancelled_by = cancelled_by


class Expired(AlreadyClosed, code="expired", status=410):
    """The approval expired: the call never starts."""

    def __init__(self, expires_at: datetime) -> None:
        super().__init__(
            f"This approval expired at {expires_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
            expires_at=expires_at.isoformat(),
        )
        self.expires_at = expires_at


class TooEarly(ApprovalError, code="too_early"):
    """The first start of a call in doubt may still be running until `not_before`."""

    def __init__(self, not_before: datetime) -> None:
        super().__init__(
            "The first start may still be running. Run the call again after"
            f" {not_before.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
            not_before=not_before.isoformat(),
        )
        self.not_before = not_before


class NotDecided(ApprovalError, code="not_decided"):
    """This approval has no decision to undo."""


class TooLate(ApprovalError, code="too_late", status=410):
    """This decision has taken effect and can no longer be undone."""


class DigestMismatch(ApprovalError, code="digest"):
    """The request has changed since you saw it. Read it again before deciding."""


class TamperedWith(ApprovalError, code="unverified"):
    """The stored request was changed after it was opened: its digests or its MAC do not verify."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"This request was tampered with and cannot be decided: {problem}.")


class NotShown(ApprovalError, code="not_shown"):
    """No page can show everything that led to the call, so it is not started."""


class NotTogether(ApprovalError, code="not_together"):
    """The request is not decided together with others; it is decided on its own page."""


class TooManyInquiries(ApprovalError, code="too_many_questions"):
    """The agent has been asked as often as it may be about one call."""

    def __init__(self) -> None:
        super().__init__(
            f"The agent was asked {MAX_INQUIRIES} times about this call, which is the limit. Decide it, or request"
            " changes."
        )


class UnknownPerson(Missing):
    """No person has this username."""

    def __init__(self, username: str) -> None:
        super().__init__(f"There is no person {username}.")


class AlreadyTaken(InvalidInput):
    """Another person has this already."""


class UnknownToken(Missing):
    """No token has this public id, or it belongs to another person."""

    def __init__(self, public_id: str) -> None:
        super().__init__(f"There is no token {public_id}.")


class LinkOver(Missing):
    """This link is not valid any more. Ask an admin for a new one."""


class LastAdmin(ApprovalError, code="guarded"):
    """The change would leave the installation without an admin."""


class NotConfirmable(ApprovalError, code="not_confirmable"):
    """The right has changed since it was shown, or this admin is not independent of its giver."""


class LogBroken(Exception):
    """The stored acts on a subject are not those that were signed."""


class AllowanceBroken(LogBroken):
    """The stored acts on an allowance are not those that were made."""


class PolicyBroken(ApprovalError, LogBroken, code="policy_broken"):
    """The stored acts on policies are not those that were signed."""


class PromptBroken(ApprovalError, LogBroken, code="prompt_broken"):
    """The stored acts on a prompt are not those that were signed."""


class PolicyRefused(ApprovalError, code="policy_refused"):
    """The change of the policy is not allowed, or not to this person."""


class PromptRefused(ApprovalError, code="prompt_refused"):
    """The change of the prompt is not allowed, or not to this person."""


class UnknownPrompt(Missing):
    """There is no such version of a prompt."""  # or no such prompt


class UnknownAllowance(Missing):
    """There is no such allowance."""  # or the actor may not read it


class AllowanceRefused(ApprovalError, code="allowance_refused"):
    """The act on the allowance is not allowed, or not any more."""


class UnknownInstance(Missing):
    """There is no such instance, or it is not the actor's."""


class UnknownChannel(Missing):
    """The person has no such channel of notices."""


class UnknownSubscription(Missing):
    """There is no such subscription, or it has no such message."""


class ProtocolRefusal(Refusal):
    """The base of refusals that only agents outside receive; never raised itself."""


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


class NotSignedIn(ApprovalError, code="not_signed_in", status=403):
    """An OpenID provider did not sign this person in, or not into an account here."""
