"""Reads the runs of a thread, and what a run remembers of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from runtime.core.documents import blobs
from runtime.core.run.continuation import RunStatus
from runtime.core.run.events import Remembered
from runtime.core.values.errors import Unreadable
from runtime.core.values.limits import MAX_REMEMBERED_ENTRIES, MAX_REMEMBERED_RUNS
from runtime.models import Run
from runtime.models import StoredBlob as BlobRow
from runtime.reads.redaction import redact


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRun:
    """A run that ended with an answer, and the position and MAC of its last entry."""

    id: UUID
    position: int
    head: str


def list_answered_runs(condition: Q, *, agent: str, thread: str) -> tuple[ThreadRun, ...]:
    """List the newest runs of the agent in this thread that meet `condition`, with an answer, the newest first.

    Runs that retention has erased or the archive has, and very long ones, are left out.
    """
    rows = Run.objects.filter(
        condition,
        agent=agent,
        thread=thread,
        status=RunStatus.COMPLETED,
        removed_at=None,
        archived_at=None,
        position__lte=MAX_REMEMBERED_ENTRIES,
    ).order_by("-id")
    newest = rows.values_list("id", "position", "head")[:MAX_REMEMBERED_RUNS]
    return tuple(ThreadRun(id=run, position=position, head=head) for run, position, head in newest)


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedText:
    """A text of an earlier run as the page shows it; `text` is None if it was erased."""

    run: UUID
    kind: str
    by: str
    at: datetime
    text: str | None


def read_memory_texts(memory_texts: Sequence[Remembered]) -> tuple[RememberedText, ...]:
    """Return what a run remembers, with the texts that exist and match their digests, secrets redacted."""
    if not memory_texts:
        return ()
    rows = BlobRow.objects.filter(digest__in=[remembered.digest for remembered in memory_texts])
    texts: dict[str, str] = {}
    for digest, body in rows.values_list("digest", "body"):
        try:
            blobs.decode_blob(blobs.Blob(digest=digest, text=body))
        except Unreadable:
            continue
        texts[digest] = redact(blobs.read_memory(body))
    return tuple(
        RememberedText(
            run=remembered.run,
            kind=remembered.kind,
            by=remembered.by,
            at=remembered.at,
            text=texts.get(remembered.digest),
        )
        for remembered in memory_texts
    )
