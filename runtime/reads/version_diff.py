"""Compares two versions of an agent line by line, for reviewers."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice
from typing import Any, Literal

from runtime.core.run.events import AgentChange

MAX_LINES = 200  # of one change
CONTEXT_LINES = 3  # unchanged lines around a change


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line of a diff: `was` is removed, `is` is added, `same` is context, `gap` stands for omitted lines."""

    kind: Literal["was", "is", "same", "gap"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDifference:
    """One changed part. `word` is its kind of change; `cut` says that more lines exist than are shown."""

    part: str
    word: Literal["added", "removed", "changed"]
    asks: bool
    lines: tuple[DiffLine, ...]
    cut: bool


def differences(changes: Iterable[AgentChange]) -> tuple[VersionDifference, ...]:
    """Return the changes in order, those that need approval first."""
    ordered = sorted(changes, key=lambda change: not change.asks)
    return tuple(_difference(change) for change in ordered)


def diff_lines(before: Any, after: Any) -> tuple[DiffLine, ...]:
    """Compare two texts, or JSON values, by line. One line more than MAX_LINES tells that more exist."""
    return tuple(islice(_lines(before, after), MAX_LINES + 1))


def _difference(change: AgentChange) -> VersionDifference:
    lines = diff_lines(change.before, change.after)
    return VersionDifference(
        part=change.part,
        word="added" if change.before is None else "removed" if change.after is None else "changed",
        asks=change.asks,
        lines=lines[:MAX_LINES],
        cut=len(lines) > MAX_LINES,
    )


def _lines(before: Any, after: Any) -> Iterable[DiffLine]:
    marks = unified_diff(_text(before), _text(after), n=CONTEXT_LINES, lineterm="")
    for mark in islice(marks, 2, None):  # after the names of two files
        match mark[:1]:
            case "-":
                yield DiffLine(kind="was", text=mark[1:])
            case "+":
                yield DiffLine(kind="is", text=mark[1:])
            case "@":
                yield DiffLine(kind="gap", text="")
            case _:
                yield DiffLine(kind="same", text=mark[1:])


def _text(value: Any) -> list[str]:
    if value is None:
        return []
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text.split("\n")
