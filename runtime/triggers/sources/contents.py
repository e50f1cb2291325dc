"""The content of a small file or object in the data of its event: its text, or the JSON of one whose name says so."""

from typing import Any

from runtime.core.digest import is_text
from runtime.core.errors import NotJson
from runtime.core.foreign_json import read_json
from runtime.triggers.sources.keeping import Refused

MAX_CONTENT = 64 * 1024  # bytes of a text that is in the data of its event


def text_of(found: bytes) -> str | None:
    """Return the text, None for other content."""
    try:
        text = found.decode()
    except UnicodeDecodeError:
        return None
    return text if is_text(text) else None


def told(name: str, text: str | None) -> dict[str, Any]:
    """Return the fields of the content, none without a text. Raise Refused."""
    if text is None:
        return {}
    if not name.lower().endswith(".json"):
        return {"text": text}
    try:
        found = read_json(text, "json")
    except NotJson as exc:
        raise Refused(f"its {exc.where}: {exc.why}") from exc
    except (ValueError, RecursionError) as exc:
        raise Refused(f"it is no JSON: {exc}") from exc
    return {"json": found}
