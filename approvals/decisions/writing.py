"""Sends a message of a person to the run of a request that they may decide, if the request's rule says so."""

from uuid import UUID

from django.db import transaction

from approvals.decisions import checks, closing, commit
from approvals.errors import Expired
from approvals.queries import requests
from approvals.requests import writers
from approvals.signed import audit
from runtime.control.messages import send_as_reviewer
from runtime.errors import Forbidden
from runtime.ports.access import Actor


def write(*, approval_id: UUID, text: object, actor: Actor) -> requests.ApprovalView:
    """Send the message. The writer may still decide this request, and none that opens later in its run.

    Raises, in this order: NotFound; Forbidden; AlreadyDecided, Cancelled or Expired; TamperedWith; Forbidden
    (`not_eligible`) if the rule does not let reviewers write; InvalidInput naming `text`; RunEnded; TooManyUndelivered.
    Nothing is written when it raises.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        loaded = checks.open_request(commit.load(approval_id, actor))
        approval = loaded.approval
        if closing.is_expired(approval, loaded.at) and approval.expires_at is not None:
            raise Expired(approval.expires_at)
        if not writers.may_write(approval):
            raise Forbidden(
                "not_eligible",
                "The policy does not let people who decide this request write to its run.",
            )
        send_as_reviewer(run=approval.run_id, text=text, actor=actor)
    return requests.verified(approval, loaded.principal)
