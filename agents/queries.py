"""The published agents as plain data for pages."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.models import PublishedAgent
from agents.schemas import Part, parts
from runtime.core.decisions import EffectClass

# What can go wrong while a tool is under way, and what happens then.
EFFECTS: dict[str, tuple[str, str]] = {
    EffectClass.READ: (
        "only reads",
        "If a worker dies in the middle, nothing was changed, and the call is simply made again.",
    ),
    EffectClass.IDEMPOTENT: (
        "can be repeated",
        "If a worker dies in the middle, the call is made again with the same key, so the other side does it once.",
    ),
    EffectClass.TRANSACTIONAL: (
        "all or nothing",
        "If a worker dies in the middle, none of it has happened, and the call is made again.",
    ),
    EffectClass.WRITE: (
        "happens once",
        "If a worker dies in the middle, it is not repeated: a person is asked what became of it.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolView:
    """One tool as a worker published it."""

    name: str
    description: str
    arguments: tuple[Part, ...]
    effect: str
    effect_words: str
    risk: str
    approval: bool
    sentence: str
    deadline: float
    secret_args: tuple[str, ...]
    secret_result: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """One agent as a worker published it. `subagents` says of each name whether it is published as well."""

    name: str
    description: str
    fingerprint: str
    published_at: datetime
    schema: dict[str, Any]
    input: tuple[Part, ...]
    tools: tuple[ToolView, ...]
    subagents: tuple[tuple[str, bool], ...]
    steps: tuple[str, ...] | None


def published() -> tuple[AgentView, ...]:
    """Every agent that a worker has published, by name."""
    rows = list(PublishedAgent.objects.order_by("name"))
    names = {row.name for row in rows}
    return tuple(_agent(row, names) for row in rows)


def agent(name: str) -> AgentView | None:
    """One agent, None if no worker has published it."""
    if "\x00" in name:
        return None
    row = PublishedAgent.objects.filter(name=name).first()
    if row is None:
        return None
    found = PublishedAgent.objects.filter(name__in=row.subagents).values_list("name", flat=True)
    return _agent(row, set(found))


def _agent(row: PublishedAgent, names: set[str]) -> AgentView:
    return AgentView(
        name=row.name,
        description=row.description,
        fingerprint=row.fingerprint,
        published_at=row.published_at,
        schema=row.input_schema,
        input=parts(row.input_schema),
        tools=tuple(_tool(tool) for tool in row.tools),
        subagents=tuple((child, child in names) for child in row.subagents),
        steps=None if row.steps is None else tuple(row.steps),
    )


def _tool(tool: dict[str, Any]) -> ToolView:
    effect, words = EFFECTS.get(tool["effect"], (tool["effect"], ""))
    return ToolView(
        name=tool["name"],
        description=tool["description"],
        arguments=parts(tool["schema"]),
        effect=effect,
        effect_words=words,
        risk=tool["risk"],
        approval=tool["approval"],
        sentence=tool["sentence"],
        deadline=tool["deadline"],
        secret_args=tuple(tool["secret_args"]),
        secret_result=tool["secret_result"],
    )
