"""Gives people more time to decide a pending request. Its digest stays, so votes from before stay valid.

A deadline is never shortened, and never extended once it has passed. An agent outside keeps its own: the Agent Approval
Protocol promises that it never changes.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from uuid import UUID

from django.db import transaction

from approvals.decisions import checks, commit
from approvals.errors import AlreadyDecided, Expired
from approvals.models import Approval
from approvals.reads.approval_views import ApprovalView
from approvals.rules import policy
from approvals.signed import audit, statements, votes
from runtime.control import user_actions
from runtime.control.user_actions import validate_reason
from runtime.errors import InvalidInput
from runtime.ports.access import Actor

MAX_DAYS: Final = 30  # from now to the new deadline
MAX_EXTENSIONS: Final = 10  # of one request


def extend(
    *, approval_id: UUID, until: object, reason: object, actor: Actor, zone: tzinfo | None = None
) -> ApprovalView:
    """Extend the deadline of a pending request, by a person who may decide it or an admin.

    `until` is a time as RFC 3339 writes it; one without an offset is in `zone`. Raises, in this order: NotFound;
    Forbidden; AlreadyDecided, AlreadyCancelled or Expired; TamperedWith; InvalidInput naming `until` or `reason`;
    RunEnded. Nothing is written when it raises.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        loaded = checks.open_request(commit.load(approval_id, actor), admins=True)
        approval, at = loaded.approval, loaded.at
        if commit.is_expired(approval, at) and approval.expires_at is not None:
            raise Expired(approval.expires_at)
        if not loaded.is_open:
            raise AlreadyDecided(None)
        moment = _read_deadline(until, zone, approval, at)
        text = validate_reason(reason, "is required to extend")
        document = statements.sign_extension(approval, until=moment, by=actor.person, reason=text)
        user_actions.extend(run=approval.run_id, document=document)
        approval.first_expires_at, approval.expires_at = approval.opened_until, moment
        approval.extensions = statements.append_extension(approval, document)
        follows = policy.next_step(votes.demands(approval), approval.opened_until, at, moment)
        assert follows is not None  # it has a deadline
        approval.next_step, approval.next_at = follows.step, follows.at
        approval.save(update_fields=_WRITTEN)
        audit.append_about(
            approval, actor=actor, act="extended", at=at, until=str(moment), reason=text
        )
    return ApprovalView(stored=approval, reader=loaded.principal)


_WRITTEN = ("first_expires_at", "expires_at", "extensions", "next_step", "next_at")


def _read_deadline(
    until: object, zone: tzinfo | None, approval: Approval, at: datetime
) -> datetime:
    """Return the new deadline in UTC. Raises InvalidInput naming `until`."""
    if approval.expires_at is None:
        raise InvalidInput("until", "is not for this request, which has no deadline")
    if approval.is_external:
        raise InvalidInput("until", "cannot change: the agent outside that asks set this deadline")
    if len(statements.read_extensions(approval)) >= MAX_EXTENSIONS:
        raise InvalidInput("until", f"was extended {MAX_EXTENSIONS} times, which is the limit")
    try:
        moment = datetime.fromisoformat(str(until))
        if moment.tzinfo is None and zone is None:
            raise ValueError("no offset")
        moment = moment.replace(tzinfo=moment.tzinfo or zone).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        example = "must be a time with its zone, as in 2030-01-31T09:00:00Z"
        raise InvalidInput("until", example) from exc
    if not approval.expires_at < moment <= at + timedelta(days=MAX_DAYS):
        raise InvalidInput(
            "until", f"must be after the present deadline, and at most {MAX_DAYS} days ahead"
        )
    return moment
