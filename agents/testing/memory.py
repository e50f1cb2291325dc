"""What a run of a test remembers of earlier runs."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from agents.testing.worker import BEGINNING
from runtime.core.documents import blobs
from runtime.core.documents.blobs import blob_of
from runtime.core.run.events import Remembered


def remembered(
    earlier: Sequence[tuple[Any, Any]], *, agent: str, by: str
) -> list[tuple[Remembered, str]]:
    """Return the texts of earlier runs, each of which is a pair of its input and its answer."""
    memories = []
    for number, (sent, answer) in enumerate(earlier, start=1):
        run = UUID(int=number)
        memories += [_remember(run, "asked", by, sent), _remember(run, "answered", agent, answer)]
    return memories


def _remember(run: UUID, kind: str, by: str, value: Any) -> tuple[Remembered, str]:
    text = blobs.memory_text(value)
    digest = blob_of(blobs.memory_body(run, kind, text)).digest
    is_asked = kind == "asked"
    entry = Remembered(
        run=run, kind="asked" if is_asked else "answered", by=by, at=BEGINNING, digest=digest
    )
    return entry, text
