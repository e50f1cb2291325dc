"""Compares versions of an agent: what changed, and which changes a person must approve.

A frame continues under another version by itself only if that version offers everything the old one did, and asks
people about the same calls. So instructions and descriptions may be reworded, tools, sub-agents and optional arguments
added, and more calls may ask. Another model, effect class or risk, and any other change of a schema, need a person's
approval.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.sdk.spec import DEPENDS
from runtime.core.run.events import AgentChange
from runtime.core.values.json_schema import is_compatible

_LISTS = {"tools": "tool", "subagents": "sub-agent"}
# `approvals` shows in each tool.
_HARMLESS = frozenset(
    {
        "name",
        "instructions",
        "approvals",
        "description",
        "deadline",
        "expires_in",
        "thread_memory",  # it is fixed when a run starts
        "prompt",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVersion:
    """One version of an agent as it was published. Its fingerprint is the digest of `definition`."""

    agent: str
    fingerprint: str
    published_at: datetime
    definition: dict[str, Any]


def list_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[AgentChange, ...]:
    """List the changes from one version's definition to another's, the most general first."""
    return tuple(_compare_definitions(before, after))


def build_unknown_change(before: str, after: str) -> tuple[AgentChange, ...]:
    """Return the change from a version that was never published. A person must approve it."""
    return (AgentChange(part="version", before=before, after=after, asks=True),)


def list_new_writes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """List the tools whose effect class became `write`."""
    tools_before = _index_by_name(before.get("tools"))
    return tuple(
        name
        for name, tool in _index_by_name(after.get("tools")).items()
        if tool.get("effect") == "write" and tools_before.get(name, tool).get("effect") != "write"
    )


def _compare_definitions(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[AgentChange]:
    plain = [key for key in {**before, **after} if key not in _LISTS]
    for key in plain:
        if before.get(key) != after.get(key):
            yield AgentChange(
                part=key,
                before=before.get(key),
                after=after.get(key),
                asks=key not in _HARMLESS,
            )
    for key, word in _LISTS.items():
        yield from _compare_lists(
            word, _index_by_name(before.get(key)), _index_by_name(after.get(key))
        )


def _compare_lists(
    word: str, before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> Iterator[AgentChange]:
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield AgentChange(part=f"{word} {name}", before=old, after=new, asks=new is None)
            continue
        for key in {**old, **new}:
            if old.get(key) != new.get(key):
                yield AgentChange(
                    part=f"{word} {name}: {key}",
                    before=old.get(key),
                    after=new.get(key),
                    asks=_needs_approval(key, old.get(key), new.get(key)),
                )


def _needs_approval(key: str, before: Any, after: Any) -> bool:
    """Say whether a person must approve this change of one tool: it is more than wording or more caution."""
    match key:
        case "schema":
            return not is_compatible(before, after)
        case "approval":
            return _rank_approval(after) < _rank_approval(before)
        case "preview" | "precondition":
            return not after
        case "secret":
            return not set(before or ()) <= set(after or ())
        case _:
            return key not in _HARMLESS


def _rank_approval(approval: Any) -> int:
    """Return how strict a tool is: never a person, by the arguments, always."""
    return 1 if approval == DEPENDS else 2 * bool(approval)


def _index_by_name(listed: Any) -> dict[str, Mapping[str, Any]]:
    return {entry["name"]: entry for entry in listed or ()}
