"""Publishes a worker's agents as rows and answers for them in processes that have no author code."""

import json
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from agents.catalogue.versions import PublishedVersion, list_changes
from agents.models import AgentVersion, PublishedAgent
from agents.registry import Registry
from agents.sdk import inputs
from agents.sdk.spec import DEPENDS, EACH, FINAL_ANSWER, AgentSpec, ToolSpec
from runtime.core.documents import external_call
from runtime.core.run.events import AgentChange
from runtime.core.values.enums import EffectClass, Risk
from runtime.core.values.json_values import hash_value, is_text
from runtime.errors import UnknownAgent
from runtime.ports.access import Expression
from runtime.ports.agents import (
    AgentParts,
    Asking,
    PromptUser,
    PublishedChange,
    PublishedTool,
    Remembers,
    ToolSchemas,
)
from runtime.store import pool

TITLES_SECONDS = 30.0  # a process reads the titles at most once in this time

PUBLISHED = (
    "title",
    "description",
    "fingerprint",
    "input_schema",
    "tools",
    "subagents",
    "steps",
    "thread_memory",
    "published_at",
)

# UNION leaves out a name that is there already, so agents that call each other end it.
_FAMILY = """
    WITH RECURSIVE family(name) AS (
        SELECT %(agent)s UNION
        SELECT jsonb_array_elements_text(agent.subagents) FROM family JOIN agents_publishedagent agent USING (name)
    )
    SELECT name, tools::text, subagents::text,
        CASE WHEN jsonb_array_length(subagents) > 0 THEN facts END
    FROM family JOIN agents_publishedagent USING (name) LEFT JOIN agents_agentversion USING (fingerprint)
"""

_SCHEMA = "(SELECT input_schema::text FROM agents_publishedagent WHERE name = %(agent)s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Titles:
    read_at: float  # monotonic
    by_name: Mapping[str, str]


_titles: _Titles | None = None


def forget_titles() -> None:
    """Read the titles again at the next use."""
    global _titles
    _titles = None


class Catalogue:
    """Implements the port AgentCatalogue with the agents that workers published last."""

    def check_input(self, agent: str, value: Any) -> None:
        """Raise UnknownAgent, or InvalidInput whose field starts with `input`."""
        expression = self.build_schema_expression(agent)
        with pool.join_transaction() as connection:
            row = connection.execute(f"SELECT {expression.sql}", expression.parameters).fetchone()
        assert row is not None  # a SELECT without FROM has one row
        self.check_read(agent, row[0], value)

    def build_schema_expression(self, agent: str) -> Expression:
        """Return the expression of the JSON Schema of an agent's input, as text; NULL if people cannot start it."""
        startable = is_text(agent) and external_call.is_started_by_people(agent)
        return Expression(sql=_SCHEMA, parameters={"agent": agent if startable else None})

    def check_read(self, agent: str, schema: str | None, value: Any) -> None:
        """Raise UnknownAgent, or InvalidInput whose field starts with `input`, by what `schema` gave."""
        if schema is None:
            raise UnknownAgent(f"there is no agent named {agent}")
        inputs.check(schema, value)

    def remembers(self, agent: str) -> Remembers:
        """Return what a run of this agent remembers of earlier runs of its thread."""
        rows = PublishedAgent.objects.filter(name=agent).values_list("thread_memory", flat=True)
        memory = rows.first()
        return Remembers(
            texts=count_memory_texts(memory), summary=int((memory or {}).get("summary", 0))
        )

    def is_newer(self, agent: str, fingerprint: str, *, than: Collection[str]) -> bool:
        """Say whether this version was published after all of those. False if it never was."""
        by_fingerprint = read_versions([fingerprint, *than])
        ours = by_fingerprint.get(fingerprint)
        compared = [by_fingerprint[each] for each in than if each in by_fingerprint]
        return ours is not None and all(
            version.published_at < ours.published_at for version in compared
        )

    def list_updates(self, used: Mapping[str, str]) -> tuple[PublishedChange, ...]:
        """Return the changes to the newest version of each agent whose used version is an older published one."""
        newest = AgentVersion.objects.filter(agent__in=list(used)).order_by(
            "agent", "-published_at", "-fingerprint"
        )
        rows = AgentVersion.objects.filter(
            Q(pk__in=newest.distinct("agent").values("pk")) | Q(fingerprint__in=[*used.values()])
        )
        published = [version for version in map(decode_version, rows) if version is not None]
        published.sort(key=lambda version: (version.published_at, version.fingerprint))
        earlier, last = (
            {getattr(version, key): version for version in published}
            for key in ("fingerprint", "agent")
        )
        updates = []
        for name, after in sorted(last.items()):
            before = earlier.get(used.get(name, ""))
            if before is not None and before.fingerprint != after.fingerprint:
                change = PublishedChange(
                    agent=after.agent,
                    before=before.fingerprint,
                    after=after.fingerprint,
                    published_at=after.published_at,
                    changes=list_changes(before.definition, after.definition),
                )
                updates.append(change)
        return tuple(updates)

    def list_changes(self, agent: str, before: str, after: str) -> tuple[AgentChange, ...] | None:
        """Return the changes between two published versions of an agent, or None if it does not have both."""
        by_fingerprint = read_versions([before, after])
        agents = {version.agent for version in by_fingerprint.values()}
        if agents != {agent} or not {before, after} <= by_fingerprint.keys():
            return None
        return list_changes(by_fingerprint[before].definition, by_fingerprint[after].definition)

    def is_published(self, agent: str) -> bool:
        """Say whether an agent of this name was ever published."""
        return is_text(agent) and PublishedAgent.objects.filter(name=agent).exists()

    def list_names(self) -> list[str]:
        """List the name of every agent that was ever published, sorted."""
        return list(PublishedAgent.objects.order_by("name").values_list("name", flat=True))

    def list_called(self) -> list[str]:
        """List the names of the published agents that other agents call, sorted."""
        subagents = dict(PublishedAgent.objects.values_list("name", "subagents"))
        children = {child for name, below in subagents.items() for child in below if child != name}
        return sorted(children & subagents.keys())

    def read_titles(self) -> Mapping[str, str]:
        """Return the titles of the agents that have one, by name. They may be TITLES_SECONDS old."""
        global _titles
        now = time.monotonic()
        if _titles is None or now - _titles.read_at >= TITLES_SECONDS:
            rows = PublishedAgent.objects.exclude(title="")
            _titles = _Titles(read_at=now, by_name=dict(rows.values_list("name", "title")))
        return _titles.by_name

    def read_family(self, agent: str) -> Mapping[str, AgentParts]:
        """Return the parts of an agent and of all agents below it, by name."""
        if not is_text(agent):
            return {}
        with pool.join_transaction() as connection:
            rows = connection.execute(_FAMILY, {"agent": agent}).fetchall()
        family = {}
        for name, tools, subagents, facts in rows:
            agents = dict.fromkeys(json.loads(subagents), Asking.NEVER)
            with suppress(ValueError):  # of a version that cannot be read
                for child in json.loads(facts or "{}").get("subagents", []):
                    if child["approval"]:
                        agents[child["name"]] = Asking.ALWAYS
            asking = {tool["name"]: _derive_asking(tool) for tool in json.loads(tools)}
            family[name] = AgentParts(tools=asking, agents=agents)
        return family

    def deny_reasons(self, agent: str, tool: str) -> tuple[str, ...]:
        """Return the reasons for a denial that the tool's author suggests."""
        rows = PublishedAgent.objects.filter(name=agent).values_list("tools", flat=True)
        tools: list[dict[str, Any]] = rows.first() or []
        published_tool = next((row for row in tools if row.get("name") == tool), {})
        return tuple(
            text for text in published_tool.get("deny_reasons", ()) if isinstance(text, str)
        )

    def prompts(self) -> Mapping[str, tuple[PromptUser, ...]]:
        """Return the agents that use each prompt as they were last published, by its name."""
        rows = PublishedAgent.objects.order_by("name")
        fields = {row.fingerprint: row.input_schema.get("properties", {}) for row in rows}
        users: dict[str, tuple[PromptUser, ...]] = {}
        for version in sorted(read_versions(fields).values(), key=lambda version: version.agent):
            name = version.definition.get("prompt")
            if name is not None:
                user = PromptUser(
                    agent=version.agent,
                    text=version.definition["instructions"],
                    fields=frozenset(fields[version.fingerprint]),
                )
                users[name] = (*users.get(name, ()), user)
        return users

    def tools(self) -> frozenset[str]:
        """Return the names of the tools and sub-agents of every published agent."""
        names = set[str]()
        for tools, subagents in PublishedAgent.objects.values_list("tools", "subagents"):
            names |= {str(tool["name"]) for tool in tools} | {str(name) for name in subagents}
        return frozenset(names)

    def find_tool_schemas(self, agent: str, tool: str) -> ToolSchemas | None:
        """Return the schemas of a tool of an agent, None if it has no such tool."""
        rows = PublishedAgent.objects.filter(name=agent).values_list("tools", flat=True)
        published_tool = next((row for tools in rows for row in tools if row["name"] == tool), None)
        if published_tool is None:
            return None
        return ToolSchemas(
            arguments=published_tool["schema"],
            result=published_tool.get("result_schema"),
            effect=EffectClass(published_tool["effect"]),
        )

    def call_schema(self, agent: str, tool: str) -> Mapping[str, Any] | None:
        """Return the schema of the arguments of an agent's tool or sub-agent, or of its typed answer, else None."""
        if (schemas := self.find_tool_schemas(agent, tool)) is not None:
            return schemas.arguments
        if tool == FINAL_ANSWER:
            return self.answer_schema(agent)
        rows = PublishedAgent.objects.filter(name=agent).values_list("subagents", flat=True)
        if tool not in (rows.first() or ()):
            return None
        inputs_of: Mapping[str, Any] | None = (
            PublishedAgent.objects.filter(name=tool).values_list("input_schema", flat=True).first()
        )
        return inputs_of

    def answer_schema(self, agent: str) -> Mapping[str, Any] | None:
        """Return the schema of the typed answer of an agent, None if it has none."""
        schema: Mapping[str, Any] | None = _read_definition(agent).get("output")
        return schema

    def is_working_on_items(self, agent: str) -> bool:
        """Say whether `for_each` made this agent."""
        return bool(_read_definition(agent).get("model") == EACH)

    def list_published_tools(self) -> tuple[PublishedTool, ...]:
        """Return the tools of every published agent, by agent."""
        rows = PublishedAgent.objects.order_by("name").values_list("name", "tools")
        return tuple(
            PublishedTool(
                agent=agent,
                name=tool["name"],
                risk=Risk(tool["risk"]),
                gated=tool["approval"],
                question=tool.get("question", False),
                depends=frozenset(tool.get("depends", ())),
            )
            for agent, tools in rows
            for tool in tools
        )

    def list_argument_schemas(self, tools: Collection[str]) -> tuple[Mapping[str, Any], ...]:
        """Return the schema of the arguments of each published tool and sub-agent of these names."""
        schemas = list[Mapping[str, Any]]()
        rows = PublishedAgent.objects.values_list("name", "tools", "input_schema")
        for name, agent_tools, schema in rows:
            schemas += [tool["schema"] for tool in agent_tools if tool["name"] in tools]
            schemas += [schema] if name in tools else []
        return tuple(schemas)

    def list_result_schemas(self, tool: str) -> tuple[Any, ...]:
        """Return the schema of the result of each published tool of this name that declares one."""
        rows = PublishedAgent.objects.values_list("tools", flat=True)
        described = (each for tools in rows for each in tools if each["name"] == tool)
        return tuple(each["result_schema"] for each in described if "result_schema" in each)


def _read_definition(agent: str) -> dict[str, Any]:
    """Return the definition of an agent as it was last published, empty if there is none."""
    rows = PublishedAgent.objects.filter(name=agent).values_list("fingerprint", flat=True)
    return next((version.definition for version in read_versions(rows).values()), {})


def _derive_asking(tool: Mapping[str, Any]) -> Asking:
    if tool.get("question"):
        return Asking.ANSWERS
    if "approval" in tool.get("depends", ()):
        return Asking.DEPENDS
    return Asking.ALWAYS if tool["approval"] else Asking.NEVER


def count_memory_texts(memory: dict[str, Any] | None) -> int:
    """Return the number of texts of a published memory, 0 if there is no memory."""
    return int((memory or {}).get("last", 0))


def publish(registry: Registry) -> None:
    """Write every agent of `registry` in one statement. Several workers may do so at once, and repeat it.

    Agents that this worker does not have keep their row: another worker may have them.
    """
    # Ordered by name, so that two workers lock the rows in the same order.
    agents = sorted(registry.agents.values(), key=lambda agent: agent.name)
    PublishedAgent.objects.bulk_create(
        [
            PublishedAgent(
                name=agent.name,
                title=agent.title,
                description=agent.description,
                fingerprint=agent.fingerprint,
                input_schema=agent.input_schema,
                tools=[_describe_tool(agent, tool) for tool in agent.all_tools],
                subagents=[child.name for child in agent.subagents],
                steps=None if agent.steps is None else list(agent.steps),
                thread_memory=None
                if agent.thread_memory is None
                else agent.thread_memory.definition,
                published_at=Now(),
            )
            for agent in agents
        ],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=PUBLISHED,
    )
    AgentVersion.objects.bulk_create(
        [
            AgentVersion(
                fingerprint=agent.fingerprint,
                agent=agent.name,
                facts=json.dumps(agent.definition, sort_keys=True),
            )
            for agent in sorted(agents, key=lambda agent: agent.fingerprint)
        ],
        ignore_conflicts=True,  # the first worker that had it says when it was new
    )


def read_versions(fingerprints: Iterable[str]) -> dict[str, PublishedVersion]:
    """Return the published versions among these, by fingerprint. Leave out rows that do not match their fingerprint."""
    rows = AgentVersion.objects.filter(fingerprint__in=list(fingerprints))
    parsed = [decode_version(row) for row in rows]
    return {version.fingerprint: version for version in parsed if version is not None}


def promote(agent: str, fingerprint: str) -> str:
    """Promote this version to the newest, and return its fingerprint. Its first letters are enough to name it.

    Raise LookupError unless the letters name exactly one version of the agent.
    """
    rows = AgentVersion.objects.filter(agent=agent, fingerprint__startswith=fingerprint)
    matches = list(rows.values_list("fingerprint", flat=True)[:2])
    if len(matches) != 1:
        number = "more than one version" if matches else "no version"
        raise LookupError(f"{number} of {agent} begins with {fingerprint}")
    AgentVersion.objects.filter(fingerprint=matches[0]).update(published_at=Now())
    return str(matches[0])


def decode_version(row: AgentVersion) -> PublishedVersion | None:
    """Return the version in a row, or None if the row was changed after it was published."""
    try:
        definition = json.loads(row.facts)
    except ValueError:
        return None
    if hash_value(definition) != row.fingerprint:
        return None
    return PublishedVersion(
        agent=row.agent,
        fingerprint=row.fingerprint,
        published_at=row.published_at,
        definition=definition,
    )


def _describe_tool(agent: AgentSpec, tool: ToolSpec) -> dict[str, Any]:
    """Describe a tool of an agent. `waived` is set if the tool requires approval and this agent does not.

    `depends` names what its conditions judge for each call; their own fields then have the strictest value.
    """
    approval = agent.approval_of(tool)
    judged = {"risk": callable(tool.risk), "approval": approval == DEPENDS}
    depends = [name for name, is_judged in judged.items() if is_judged]
    return {
        "name": tool.name,
        "description": tool.description,
        "schema": tool.schema,
        "effect": tool.effect,
        "risk": Risk.HIGH if callable(tool.risk) else tool.risk,
        "approval": bool(approval),
        **({"waived": True} if tool.waived and not approval else {}),
        **({"depends": depends} if depends else {}),
        **({"question": True} if tool.question else {}),
        **({"held": True} if tool.holds_text else {}),
        "sentence": tool.sentence,
        "deadline": tool.deadline,
        "secret_args": sorted(tool.secret_args),
        "secret_result": tool.secret_result,
        **({} if tool.result_schema is None else {"result_schema": tool.result_schema}),
        **({"deny_reasons": list(tool.deny_reasons)} if tool.deny_reasons else {}),
    }
