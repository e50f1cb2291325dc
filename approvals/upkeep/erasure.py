"""Erases what requests show, when retention removes their run."""

from datetime import datetime
from uuid import UUID

from django.db.models import F, Value
from django.db.models.functions import Concat

from approvals.models import Approval, Comment, Handover
from approvals.reads import review_times
from approvals.signed import audit


def erase(*, run: UUID, at: datetime, head: str) -> None:
    """Erase arguments and sentence of every request of the run, how it was read, and comments.

    Decisions and digests stay. This is audited in the caller's transaction, with `head`.
    """
    audit.lock_runs(run)
    review_times.erase(run)
    for texts in (Comment, Handover):
        texts.objects.filter(approval__run=run).delete()
    approvals = Approval.objects.filter(run=run, removed_at=None)
    approvals.filter(edited__isnull=False).update(edited="{}")
    approvals.update(
        args="{}",
        preview=None,
        edited_preview=None,
        sentence=Concat(F("tool"), Value(" (removed under retention)")),
        removed_at=at,
    )
    audit.append(
        run=run,
        actor=None,
        act="removed",
        subject=f"run {run}",
        detail={"head": head},
        at=at,
    )
