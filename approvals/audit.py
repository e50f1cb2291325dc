"""Who did what, append-only; per run, each row's hash covers the row and the hash before it.

The caller holds the run's row, in the transaction of the act itself: that is what serialises the
chain, and the unique (run, seq) stops whoever forgets. The chain shows an edited, dropped or inserted
row; that the newest rows were cut off it cannot show.
"""

import json
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.utils import timezone

from approvals.errors import BrokenChain
from approvals.models import AuditEntry, Request
from runtime.core.digest import sha256_of
from runtime.ports import Actor

GENESIS = ""
UNDONE = "undone"

_HOLD = "SELECT FROM runtime_run WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
_HOLD_OF = """
    SELECT FROM runtime_run WHERE id = (SELECT run_id FROM approvals_request WHERE id = %s) FOR NO KEY UPDATE
"""
_LAST = "SELECT seq, hash FROM approvals_auditentry WHERE run_id = %s ORDER BY seq DESC LIMIT 1"
_APPEND = """
    INSERT INTO approvals_auditentry
        (run_id, seq, at, actor, token, act, subject, detail, previous, hash)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def hold(*runs: UUID) -> None:
    """Lock the rows of these runs, in one order whoever locks several, until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(_HOLD, [list(runs)])


def hold_run_of(request: UUID) -> None:
    """The same of the run of a request, if there is such a request."""
    with connection.cursor() as cursor:
        cursor.execute(_HOLD_OF, [request])


def append(
    *,
    run: UUID,
    actor: Actor | None,
    act: str,
    subject: str,
    detail: dict[str, str | None],
    at: datetime | None = None,
) -> None:
    """Add a row to the run's chain. `actor` None is the system; `at` is now unless given."""
    # At each gate and each decision, where the ORM would cost more than Postgres.
    with connection.cursor() as cursor:
        cursor.execute(_LAST, [run])
        seq, previous = cursor.fetchone() or (0, GENESIS)
        entry = AuditEntry(
            run_id=run,
            seq=seq + 1,
            at=at or timezone.now(),
            actor=None if actor is None else actor.person,
            token=None if actor is None else actor.token,
            act=act,
            subject=subject,
            detail=json.dumps(detail, ensure_ascii=False, sort_keys=True),
            previous=previous,
        )
        said = (entry.actor, entry.token, act, subject, entry.detail, previous, _hash(entry))
        cursor.execute(_APPEND, [run, entry.seq, entry.at, *said])


def undone(request: Request) -> int:
    """How many decisions on a request were taken back. The rows that say so can be neither changed nor deleted."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM approvals_auditentry WHERE run_id = %s AND act = %s AND subject = %s",
            [request.run_id, UNDONE, f"request {request.id}"],
        )
        (count,) = cursor.fetchone()
    return int(count)


def verify(run: UUID) -> int:
    """The number of rows of a run's chain. Raises BrokenChain at the first that does not hold."""
    previous, count = GENESIS, 0
    for entry in AuditEntry.objects.filter(run=run).order_by("seq").iterator():
        count += 1
        if entry.seq != count:
            raise BrokenChain(run, count, "is missing")
        if entry.previous != previous:
            raise BrokenChain(run, count, "does not follow the row before")
        if entry.hash != _hash(entry):
            raise BrokenChain(run, count, "was changed")
        previous = entry.hash
    return count


def _hash(entry: AuditEntry) -> str:
    return sha256_of(
        {
            "run": str(entry.run_id),
            "seq": entry.seq,
            "at": entry.at.isoformat(),
            "actor": entry.actor,
            "token": entry.token,
            "act": entry.act,
            "subject": entry.subject,
            "detail": entry.detail,
            "previous": entry.previous,
        }
    )
