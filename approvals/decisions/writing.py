"""Sends a message of a person to the run of a request that they may decide, if the request's rule says so."""

from uuid import UUID

from django.db import transaction

from approvals import audit
from approvals.decisions import checks, closing, commit
from approvals.errors import Expired
from approvals.queries import requests
from approvals.requests import writers
from runtime.control.messages import send_as_reviewer
from runtime.errors import Forbidden
from runtime.ports.access import Actor


def write(*, request: UUID, text: object, actor: Actor) -> requests.Approval:
    """Send the message. The writer may still decide this request, and none that opens later in its run.

    Raises, in this order: NotFound; Forbidden; AlreadyDecided, Cancelled or Expired; TamperedWith; Forbidden
    (`not_eligible`) if the rule does not let reviewers write; InvalidInput naming `text`; RunEnded; TooManyUndelivered.
    Nothing is written when it raises.
    """
    with transaction.atomic():
        audit.lock_run_of(request)
        looked = checks.open_request(commit.load(request, actor))
        row = looked.request
        if closing.is_expired(row, looked.at) and row.expires_at is not None:
            raise Expired(row.expires_at)
        if not writers.may_write(row):
            raise Forbidden(
                "not_eligible",
                "The policy does not let people who decide this request write to its run.",
            )
        send_as_reviewer(run=row.run_id, text=text, actor=actor)
    return requests.verified(row, looked.principal)
