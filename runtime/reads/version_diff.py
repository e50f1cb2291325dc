"""Compares two versions of an agent line by line, for reviewers."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice
from typing import Any, Literal

from runtime.core.run.events import AgentChange

MAX_LINES = 200  # of one change
CONTEXT_LINES = 3  # unchanged lines around a change


Kind = Literal["was", "is", "same", "gap"]
_KINDS: Mapping[str, Kind] = {"-": "was", "+": "is", "@": "gap"}  # by the mark of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line of a diff: `was` is removed, `is` is added, `same` is context, `gap` stands for omitted lines."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDifference:
    """One changed part. `word` is its kind of change; `cut` says that more lines exist than are shown."""

    part: str
    word: Literal["added", "removed", "changed"]
    asks: bool
    lines: tuple[DiffLine, ...]
    cut: bool


def list_differences(changes: Iterable[AgentChange]) -> tuple[VersionDifference, ...]:
    """Return the changes in order, those that need approval first."""
    changed = []
    for change in sorted(changes, key=lambda change: not change.asks):
        lines = compare_lines(change.before, change.after)
        word: Literal["added", "removed", "changed"] = "changed"
        if change.before is None:
            word = "added"
        elif change.after is None:
            word = "removed"
        difference = VersionDifference(
            part=change.part,
            word=word,
            asks=change.asks,
            lines=lines[:MAX_LINES],
            cut=len(lines) > MAX_LINES,
        )
        changed.append(difference)
    return tuple(changed)


def compare_lines(before: Any, after: Any) -> tuple[DiffLine, ...]:
    """Compare two texts, or JSON values, by line. One line more than MAX_LINES tells that more exist."""
    marks = unified_diff(_format_value(before), _format_value(after), n=CONTEXT_LINES, lineterm="")
    after_names = islice(marks, 2, MAX_LINES + 3)  # the names of two files
    return tuple(
        DiffLine(kind=_KINDS.get(mark[0], "same"), text="" if mark[0] == "@" else mark[1:])
        for mark in after_names
    )


def _format_value(value: Any) -> list[str]:
    if value is None:
        return []
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text.split("\n")
