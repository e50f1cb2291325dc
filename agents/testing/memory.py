"""What a run of a test remembers of earlier runs."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from agents.testing.worker import BEGINNING
from runtime.core.documents import memory
from runtime.core.documents.blobs import blob_of
from runtime.core.events import Remembered


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
    text = memory.text_of(value)
    digest = blob_of(memory.stored(run, kind, text)).digest
    is_asked = kind == "asked"
    entry = Remembered(
        run=run, kind="asked" if is_asked else "answered", by=by, at=BEGINNING, digest=digest
    )
    return entry, text
