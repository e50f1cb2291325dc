"""What a run remembers of earlier runs of its thread: texts that are stored by their hash, apart from the journal.

The first entry of the run has their digests, so its memory is fixed, and the journal verifies without the texts.
A stored text names the run that it comes from. So no two runs share one, and it can be erased with that run.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from runtime.core.events import Remembered
from runtime.core.limits import MAX_REMEMBERED_TEXT

Recall = Callable[[Sequence[Remembered]], Mapping[str, str]]  # the texts that exist, by digest


def text_of(value: Any) -> str:
    """Return an input or an answer as text, at most MAX_REMEMBERED_TEXT characters of it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_REMEMBERED_TEXT else text[: MAX_REMEMBERED_TEXT - 1] + "…"


def stored(run: UUID, kind: str, text: str) -> str:
    """Return the JSON under whose hash a text of `run` is stored."""
    return json.dumps({"run": str(run), "kind": kind, "text": text}, separators=(",", ":"))


def read(body: str) -> str:
    """Return the text of what `stored` made."""
    text: str = json.loads(body)["text"]
    return text


def recalled(memory: Sequence[Remembered], texts: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    """Return the memory as models get it: `text` is None where it was erased."""
    return tuple(
        {
            "run": str(one.run),
            "kind": one.kind,
            "by": one.by,
            "at": one.at.isoformat(timespec="seconds"),
            "text": texts.get(one.digest),
        }
        for one in memory
    )
