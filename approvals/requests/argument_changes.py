"""Compares the arguments with which a person approved a call with the proposed ones."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from approvals.rules.unusual_values import UnusualValue
from runtime.core.values import json_schema

MAX_VALUE = 40  # characters of a value in a heading

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentChange:
    """One changed argument, or a part of one, with its values; `was_given` and `is_given` say if there are any.

    `odd` are the odd values of the argument, at its first change.
    """

    path: str
    before: Any
    after: Any
    was_given: bool
    is_given: bool
    odd: tuple[UnusualValue, ...] = ()


def list_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[ArgumentChange]:
    """List the differences between two arguments, in the order of the first."""
    return list(_list_changes(before, after, ""))


def describe(changes: Sequence[ArgumentChange]) -> str:
    """Name the first change in a few words, for a heading, and how many more there are. Without changes return ""."""
    if not changes:
        return ""
    change, count = changes[0], len(changes) - 1
    after = _write(change.after) if change.is_given else "no value"
    before = _write(change.before) if change.was_given else "none"
    suffix = f" and {count} more change{'s'[: count - 1]}" if count else ""
    return f"{change.path} {after} instead of {before}{suffix}"


def _write(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def _list_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str
) -> Iterator[ArgumentChange]:
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _list_changes(old, new, f"{prefix}{name}.")
        elif (
            old is _ABSENT
            or new is _ABSENT
            or json_schema.format_value([old]) != json_schema.format_value([new])
        ):
            yield ArgumentChange(
                path=f"{prefix}{name}",
                before=None if old is _ABSENT else old,
                after=None if new is _ABSENT else new,
                was_given=old is not _ABSENT,
                is_given=new is not _ABSENT,
            )
