"""Tells an instance by its webhook that its request has ended: `request.resolved`, once for each request.

The message is added with the request, so it cannot be lost, and is composed when the request has ended. A decision
wakes it in the statement that records it, and so do a cancellation and an expiry; the deadline wakes it by itself. A
message that is woken too early, as by a decision that was undone, waits again.
"""

import json
from datetime import datetime, timedelta

from approvals import clock
from approvals.decisions import external_requests
from approvals.decisions.external_requests import RequestStatus
from approvals.models import OutboxMessage
from approvals.outbox import webhook
from approvals.outbox.messages import AttemptResult, Content
from approvals.people import instance_webhooks
from runtime.models import Run

WINDOW = timedelta(hours=168)  # after the decision
AT_LEAST = timedelta(seconds=1)  # between two looks at a pending request


class ResolvedRequests:
    """Composes and sends `request.resolved`."""

    def compose(self, message: OutboxMessage) -> Content | datetime | None:
        """Return the event; when to look again at a pending request; None if its webhook came later or is gone."""
        row = instance_webhooks.row_of(message.destination)
        run = Run.objects.filter(pk=message.subject, removed_at=None, archived_at=None).first()
        if row is None or run is None:
            return None
        now = clock.now()
        state = external_requests.state_of(run, now)
        if state.status is RequestStatus.PENDING:
            return max(external_requests.next_change(run, now), now + AT_LEAST)
        assert state.at is not None  # it is final
        if state.at < row.since:
            return None
        body = {
            "id": str(message.id),
            "type": instance_webhooks.RESOLVED,
            "instance_id": message.destination,
            "request_id": message.subject,
            "created_at": clock.to_wire(state.at),
        }
        return Content(body=json.dumps(body), occurred_at=state.at, gives_up_at=state.at + WINDOW)

    def send(self, message: OutboxMessage) -> AttemptResult | None:
        """Post the event to the present address of the instance."""
        row = instance_webhooks.row_of(message.destination)
        if row is None or message.body is None:
            return None
        secret = instance_webhooks.secret_of(row)
        reply = webhook.post(row.url, secret=secret, message_id=str(message.id), body=message.body)
        return reply.answer
