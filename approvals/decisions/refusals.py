"""Records refused attempts to decide in the audit of the run.

Only attempts that a person makes against a rule are recorded: without the right to read or decide, within their own
run, of a request that was tampered with, or with the digest of another request. A person adds one row of each kind for
a request, and a request has at most MAX_REFUSALS of them, so that no one can flood the audit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from approvals.errors import DigestMismatch, NotFound, TamperedWith
from approvals.models import Approval, AuditEntry
from approvals.signed import audit
from runtime.errors import Forbidden, RequestError
from runtime.ports.access import Actor

REFUSED = "refused: "  # before the code of the error
MAX_REFUSALS = 50

RECORDED = (NotFound, Forbidden, TamperedWith, DigestMismatch)


@contextmanager
def recorded(actor: Actor, **request: UUID) -> Iterator[None]:
    """Record the refusal with which the block ends. `request` finds the row, by `pk` or by `run` and `gate`."""
    try:
        yield
    except RECORDED as exc:
        record(actor, exc, **request)
        raise


def record(actor: Actor, problem: RequestError, **request: UUID) -> None:
    """Record that the actor was refused, unless it is recorded already or there is no such request."""
    approval = Approval.objects.filter(**request).only("run_id", "approval_digest").first()
    if approval is None or not isinstance(problem, RECORDED):
        return
    act = f"{REFUSED}{problem.code}"
    if _is_enough(
        approval, actor, act
    ):  # without the lock, which a person without rights must not take at will
        return
    with transaction.atomic():
        audit.lock_runs(approval.run_id)
        if not _is_enough(approval, actor, act):
            audit.append(
                run=approval.run_id,
                actor=actor,
                act=act,
                subject=_subject(approval),
                detail={"digest": approval.approval_digest},
            )


def _is_enough(approval: Approval, actor: Actor, act: str) -> bool:
    """Tell whether the audit has this refusal of the person, or no room for another one."""
    refusals = _refusals(approval)
    same = refusals.filter(actor=actor.person, act=act)
    return same.exists() or refusals.count() >= MAX_REFUSALS


def _refusals(approval: Approval) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(
        run=approval.run_id, subject=_subject(approval), act__startswith=REFUSED
    )


def _subject(approval: Approval) -> str:
    return f"request {approval.id}"
