"""Reads the published agents as plain data for pages and the API.

Reads the tools that a published MCP gateway offers.
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

from agents.catalogue import published as catalogue
from agents.catalogue.versions import list_changes
from agents.models import AgentVersion, PublishedAgent
from agents.sdk.spec import GATEWAY, PIN
from runtime.core.documents import external_call
from runtime.core.values.enums import EFFECT_CLASSES, EffectClass
from runtime.core.values.json_schema import Property, list_properties
from runtime.core.values.json_values import is_text
from runtime.reads.labels import describe_effect
from runtime.reads.version_diff import VersionDifference, list_differences
from runtime.reads.workers import CallOutcomes, count_call_outcomes, read_live_versions

ALIVE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolView:
    """One tool as a worker published it. `depends` names those of `risk` and `approval` that its arguments decide."""

    name: str
    description: str
    arguments: tuple[Property, ...]
    effect: str
    effect_words: str
    risk: str
    approval: bool
    depends: tuple[str, ...]
    waived: bool
    question: bool
    holds_text: bool
    sentence: str
    deadline: float
    secret_args: tuple[str, ...]
    secret_result: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedTool:
    """A tool, the agents that have it, and how its calls ended, None if it was never called."""

    tool: ToolView
    agents: tuple[str, ...]
    outcomes: CallOutcomes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """One agent as a worker published it. `subagents` pairs each name with whether it is published too.

    Only `find_agent` fills in what the version says: `output` holds the parts of a typed result, None for text; `model`
    names its models; `instructions` is None if the version is not known. `remembers` is the number of texts of earlier
    runs of its thread that a run remembers, and with `sums_up` it remembers a summary of them.
    """

    name: str
    description: str
    fingerprint: str
    published_at: datetime
    schema: dict[str, Any]
    input: tuple[Property, ...]
    tools: tuple[ToolView, ...]
    subagents: tuple[tuple[str, bool], ...]
    steps: tuple[str, ...] | None
    output: tuple[Property, ...] | None = None
    model: tuple[str, ...] = ()
    instructions: str | None = None
    remembers: int = 0
    sums_up: bool = False

    @property
    def is_startable(self) -> bool:
        """Whether people start it. Agents outside ask by the built-in one."""
        return external_call.is_started_by_people(self.name)

    @property
    def is_gateway(self) -> bool:
        """Whether MCP clients call its tools."""
        return self.model == (GATEWAY,)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    """One published version. `workers` says whether a living worker has it; `differences` are those to the one before.

    `asks` says that a person had to approve before runs of the earlier version continued under this one.
    """

    fingerprint: str
    published_at: datetime
    has_workers: bool
    differences: tuple[VersionDifference, ...]
    is_first: bool

    @property
    def asks(self) -> bool:
        """Whether a change needed a person's approval."""
        return any(difference.asks for difference in self.differences)


def list_versions(name: str, limit: int, *, wordings: bool) -> tuple[VersionView, ...]:
    """List the newest versions of an agent, newest first, `wordings` with the changed texts of instructions."""
    rows = AgentVersion.objects.filter(agent=name).order_by("-published_at", "-fingerprint")
    parsed = [catalogue.decode_version(row) for row in rows[: limit + 1]]
    intact = [version for version in parsed if version is not None]
    live = read_live_versions(ALIVE).get(name, frozenset())
    views = []
    for version, before in zip_longest(intact[:limit], intact[1 : limit + 1]):
        listed = (
            list_differences(list_changes(before.definition, version.definition)) if before else ()
        )
        if not wordings:
            listed = tuple(
                replace(each, lines=(), cut=False) if each.part == "instructions" else each
                for each in listed
            )
        view = VersionView(
            fingerprint=version.fingerprint,
            published_at=version.published_at,
            has_workers=version.fingerprint in live,
            differences=listed,
            is_first=before is None,
        )
        views.append(view)
    return tuple(views)


def list_agents() -> tuple[AgentView, ...]:
    """List every agent that a worker published, by name."""
    rows = list(PublishedAgent.objects.order_by("name"))
    names = {row.name for row in rows}
    return tuple(_build_agent_view(row, names) for row in rows)


def list_tools() -> tuple[UsedTool, ...]:
    """List the tools of all published agents by name. Different tools of the same name are listed separately."""
    users: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for row in PublishedAgent.objects.order_by("name"):
        for tool in row.tools:
            users.setdefault(json.dumps(tool, sort_keys=True), (tool, []))[1].append(row.name)
    outcomes = count_call_outcomes()
    return tuple(
        UsedTool(
            tool=_build_tool_view(tool), agents=tuple(names), outcomes=outcomes.get(tool["name"])
        )
        for tool, names in sorted(users.values(), key=lambda entry: str(entry[0]["name"]))
    )


def list_callers(name: str) -> tuple[str, ...]:
    """List the names of the other agents that call an agent, sorted."""
    rows = PublishedAgent.objects.filter(subagents__contains=[name]).exclude(name=name)
    return tuple(rows.order_by("name").values_list("name", flat=True))


def list_agent_documents() -> list[dict[str, Any]]:
    """Return every published agent that people start as JSON for programs, sorted by name."""
    agents = PublishedAgent.objects.order_by("name")
    rows = [row for row in agents if external_call.is_started_by_people(row.name)]
    by_fingerprint = catalogue.read_versions(row.fingerprint for row in rows)
    documents = []
    for row in rows:
        version = by_fingerprint.get(row.fingerprint)
        document = {
            "name": row.name,
            "description": row.description,
            "fingerprint": row.fingerprint,
            "published_at": row.published_at,
            "input_schema": row.input_schema,
            "output_schema": None if version is None else version.definition.get("output"),
            "tools": [{**tool, "input_schema": tool["schema"]} for tool in row.tools],
            "subagents": row.subagents,
        }
        documents.append(document)
    return documents


def find_agent(name: str) -> AgentView | None:
    """Return one agent, or None if no worker published it."""
    if "\x00" in name:
        return None
    row = PublishedAgent.objects.filter(name=name).first()
    if row is None:
        return None
    published_names = PublishedAgent.objects.filter(name__in=row.subagents).values_list(
        "name", flat=True
    )
    version = catalogue.read_versions([row.fingerprint]).get(row.fingerprint)
    definition = {} if version is None else version.definition
    output, model = definition.get("output"), definition.get("model", [])
    return replace(
        _build_agent_view(row, set(published_names)),
        output=None if output is None else list_properties(output),
        model=(model,) if isinstance(model, str) else tuple(model),
        instructions=definition.get("instructions"),
    )


def _build_agent_view(row: PublishedAgent, names: set[str]) -> AgentView:
    return AgentView(
        name=row.name,
        description=row.description,
        fingerprint=row.fingerprint,
        published_at=row.published_at,
        schema=row.input_schema,
        input=list_properties(row.input_schema),
        tools=tuple(_build_tool_view(tool) for tool in row.tools),
        subagents=tuple((child, child in names) for child in row.subagents),
        steps=None if row.steps is None else tuple(row.steps),
        remembers=catalogue.count_memory_texts(row.thread_memory),
        sums_up="summary" in (row.thread_memory or {}),
    )


def _build_tool_view(tool: dict[str, Any]) -> ToolView:
    effect, words = describe_effect(tool["effect"])
    return ToolView(
        name=tool["name"],
        description=tool["description"],
        arguments=list_properties(tool["schema"]),
        effect=effect,
        effect_words=words,
        risk=tool["risk"],
        approval=tool["approval"],
        depends=tuple(tool.get("depends", ())),
        waived=tool.get("waived", False),
        question=tool.get("question", False),
        holds_text=tool.get("held", False),
        sentence=tool["sentence"],
        deadline=tool["deadline"],
        secret_args=tuple(tool["secret_args"]),
        secret_result=tool["secret_result"],
    )


def describe_offered_tools(name: str) -> list[dict[str, Any]] | None:
    """Describe the tools of the gateway of this name as MCP does, None if there is none."""
    agent = PublishedAgent.objects.filter(name=name).first() if is_text(name) else None
    if agent is None:
        return None
    version = catalogue.read_versions([agent.fingerprint]).get(agent.fingerprint)
    if version is None or version.definition["model"] != GATEWAY:
        return None
    names = agent.input_schema["properties"]["tool"]["enum"]  # in the order of the tools
    return [
        {
            "name": of_server,
            "description": tool["description"],
            "inputSchema": {key: rule for key, rule in tool["schema"].items() if key != PIN},
            "annotations": {
                "readOnlyHint": not EFFECT_CLASSES[EffectClass(tool["effect"])].has_side_effects
            },
            "execution": {"taskSupport": "optional"},
        }
        for of_server, tool in zip(names, agent.tools, strict=True)
    ]
