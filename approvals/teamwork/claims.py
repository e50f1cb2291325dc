"""Claims of requests: a person says that they look at one, for ten minutes.

A claim gives no right and takes none. It ends when its person releases it, when its time is over, and when the request
is decided. Of two people who claim a request at once, Postgres lets one row be written.
"""

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from approvals import clock
from approvals.decisions import checks
from approvals.errors import AlreadyClaimed
from approvals.models import Approval, ApprovalClaim, Handover
from approvals.queries import requests
from approvals.rights import principals
from approvals.rights.scopes import Scope
from runtime.control.transaction import notify
from runtime.errors import Forbidden
from runtime.ports.access import Actor

LASTS: Final = timedelta(minutes=10)

# A claim that has ended, or the person's own, is written again. The person's own keeps its start.
_CLAIM = """
    INSERT INTO approvals_approvalclaim AS c (approval_id, person, at, until)
    SELECT r.id, %(person)s, clock_timestamp(), clock_timestamp() + %(lasts)s
    FROM approvals_approval r WHERE r.id = %(approval)s AND r.status = 'pending'
    ON CONFLICT (approval_id) DO UPDATE SET person = excluded.person, until = excluded.until,
        at = CASE WHEN c.person = excluded.person AND c.until > excluded.at THEN c.at ELSE excluded.at END
    WHERE c.until <= excluded.at OR c.person = excluded.person OR c.person = %(giver)s
    RETURNING until
"""


def claim(*, approval_id: UUID, actor: Actor) -> datetime:
    """Claim a request that the actor may decide, or extend the actor's own claim; return the end of the claim.

    Raises, in this order: NotFound; Forbidden; Cancelled, Expired or AlreadyDecided; AlreadyClaimed.
    """
    with transaction.atomic():
        approval = decidable(approval_id, actor)
        return write(approval, actor.person)


def release(*, approval_id: UUID, actor: Actor) -> None:
    """End the actor's claim, and a hand-over to them. Does nothing without either.

    Raises NotFound, or Forbidden for a token without the scope to decide. A person who lost the right may still do it.
    """
    with transaction.atomic():
        principal = principals.principal_of(actor)
        approval = requests.readable(approval_id, principal)
        if principal is not None and Scope.APPROVALS_DECIDE not in principal.scopes:
            raise Forbidden(
                "scope", f"This token does not have the scope {Scope.APPROVALS_DECIDE}."
            )
        gone = ApprovalClaim.objects.filter(approval=approval, person=actor.person).delete()[0]
        gone += Handover.objects.filter(approval=approval, person=actor.person).delete()[0]
        if gone:
            notify(approval.run_id, inbox=True, hint=False)


def decidable(approval_id: UUID, actor: Actor) -> Approval:
    """Return a pending request that the actor may decide. Raises as `claim` does, except AlreadyClaimed."""
    principal = principals.principal_of(actor)
    approval = requests.readable(approval_id, principal)
    checks.check_right(approval, principal)
    checks.check_open(approval)
    return approval


def write(approval: Approval, person: str, giver: str = "") -> datetime:
    """Let `person` hold the claim, also in place of `giver`. Raises AlreadyClaimed if another person holds it."""
    given: dict[str, Any] = {
        "approval": approval.id,
        "person": person,
        "giver": giver,
        "lasts": LASTS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, given)
        found = cursor.fetchone()
    if found is None:
        held = ApprovalClaim.objects.filter(approval=approval).first()
        if held is None or held.until <= clock.now():  # it was decided meanwhile
            approval.refresh_from_db()
            checks.check_open(approval)
        raise AlreadyClaimed(held.person if held else "")
    notify(approval.run_id, inbox=True, hint=False)
    return clock.to_utc(found[0])
