"""Previews for authors: `Preview` says what a call would change, and how much of what."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from runtime.core.values.json_values import hash_value

PARTS = ("summary", "changes", "counts", "targets", "warnings")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewChange:
    """One value that the call would change. `before` is None if it is added, `after` if it is removed."""

    what: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a call would do, for its reviewer. Each part may be empty; all values are JSON.

    `summary` is one sentence, `changes` are the values that would change, `counts` say how many of what, `targets`
    are the people or objects that are affected, `warnings` are sentences about risks.
    """

    summary: str = ""
    changes: Sequence[PreviewChange] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    targets: Sequence[str] = ()
    warnings: Sequence[str] = ()


def serialize_preview(preview: Preview) -> dict[str, Any]:
    """Return the parts of a preview that say something, as JSON."""
    parts = {}
    for name in PARTS:
        value = getattr(preview, name)
        if isinstance(value, Mapping):
            value = dict(value)
        elif not isinstance(value, str):
            value = [asdict(row) if isinstance(row, PreviewChange) else row for row in value]
        if value:
            parts[name] = value
    return parts


def compute_preview_digest(parts: Mapping[str, Any], ignored: Sequence[str]) -> str:
    """Return the digest of the parts of a preview that matter, without the ignored ones.

    `counts` ignores the whole part, `counts.sessions` and `changes.last login` one entry of it.
    """
    relevant = {name: part for name, part in parts.items() if name not in ignored}
    if counts := relevant.get("counts"):
        relevant["counts"] = {key: n for key, n in counts.items() if f"counts.{key}" not in ignored}
    if changes := relevant.get("changes"):
        relevant["changes"] = [row for row in changes if f"changes.{row['what']}" not in ignored]
    return hash_value(relevant)
