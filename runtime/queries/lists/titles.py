"""Makes the title of a run in a list, from the first fields of its input, and the first words of its answer."""

import json
from typing import Any

from runtime.queries.redaction import redact

FIELDS = 3
FIELD_CHARACTERS = 60
READ_CHARACTERS = (
    2_000  # of a stored input or output; a longer one is cut, is no JSON then, and has no title
)
ANSWER_CHARACTERS = 160


def title(stored: str | None) -> str:
    """Return the first fields of a stored input as text; empty if it is too long or has none that fits a title."""
    given = _read(stored)
    values = list(given.values()) if isinstance(given, dict) else [given]
    plain = [text for value in values if (text := _text(value))]
    return " · ".join(_cut(text, FIELD_CHARACTERS) for text in plain[:FIELDS])


def answer(stored: str | None) -> str:
    """Return the beginning of a stored output; empty if it is too long to read here."""
    found = _read(stored)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return "" if found is None else _cut(text, ANSWER_CHARACTERS)


def _read(stored: str | None) -> Any:
    try:
        return None if stored is None else redact(json.loads(stored))
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> str:
    """Return a value that can stand in a title as text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return " ".join(str(value).split())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
