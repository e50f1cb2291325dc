"""Keeps who has the page of a request open. An open page says so every few seconds; without scripts it does not."""

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import connection, transaction

from approvals.queries import requests
from runtime.ports.access import Actor

_FORGOTTEN: Final = timedelta(hours=1)

_SEEN = """
    INSERT INTO approvals_approvalviewer (approval_id, person, at) VALUES (%(approval)s, %(person)s, clock_timestamp())
    ON CONFLICT (approval_id, person) DO UPDATE SET at = excluded.at
"""
_FORGET = """
    DELETE FROM approvals_approvalviewer WHERE id IN (
        SELECT id FROM approvals_approvalviewer WHERE at < clock_timestamp() - %(age)s::interval
        LIMIT 100 FOR UPDATE SKIP LOCKED)
"""


def seen(*, approval_id: UUID, actor: Actor) -> requests.ApprovalView:
    """Record that the actor has the request open now, and return the request. Raises NotFound."""
    approval = requests.approval(approval_id, actor=actor)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_SEEN, {"approval": approval_id, "person": actor.person})
        cursor.execute(_FORGET, {"age": str(_FORGOTTEN)})
    return approval
