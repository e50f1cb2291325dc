"""What a run of a test remembers of earlier runs."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from agents.testing.worker import BEGINNING
from runtime.core.documents import memory
from runtime.core.documents.blobs import blob_of
from runtime.core.events import Remembered


def remembered(
    given: Sequence[tuple[Any, Any]], *, agent: str, by: str
) -> list[tuple[Remembered, str]]:
    """Return the texts of earlier runs, each of which is a pair of its input and its answer."""
    found = []
    for number, (asked, answered) in enumerate(given, start=1):
        run = UUID(int=number)
        found += [_one(run, "asked", by, asked), _one(run, "answered", agent, answered)]
    return found


def _one(run: UUID, kind: str, by: str, value: Any) -> tuple[Remembered, str]:
    text = memory.text_of(value)
    digest = blob_of(memory.stored(run, kind, text)).digest
    is_asked = kind == "asked"
    told = Remembered(
        run=run, kind="asked" if is_asked else "answered", by=by, at=BEGINNING, digest=digest
    )
    return told, text
