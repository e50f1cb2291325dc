"""Publishes a worker's agents as rows and answers for them in processes that have no author code."""

from typing import Any

from django.db.models.functions import Now

from agents import inputs
from agents.models import PublishedAgent
from agents.registry import Registry
from agents.spec import AgentSpec, ToolSpec
from runtime.ports import UnknownAgent

PUBLISHED = (
    "description",
    "fingerprint",
    "input_schema",
    "tools",
    "subagents",
    "steps",
    "published_at",
)


class Catalogue:
    """Implements runtime.ports.AgentCatalogue on what the workers published last."""

    def check_input(self, agent: str, value: Any) -> None:
        """Raise UnknownAgent, or InvalidInput whose field starts with `input`."""
        rows = PublishedAgent.objects.filter(name=agent)
        schema = rows.values_list("input_schema", flat=True).first()
        if schema is None:
            raise UnknownAgent(f"there is no agent named {agent}")
        inputs.check(schema, value)


def publish(registry: Registry) -> None:
    """Write every agent of `registry`, in one statement; again and at once from many workers does no harm.

    Agents that no worker has any more keep their row: another worker may still have them.
    """
    # Ordered by name, so that two workers lock the rows in the same order.
    agents = sorted(registry.agents.values(), key=lambda agent: agent.name)
    PublishedAgent.objects.bulk_create(
        [_row(agent) for agent in agents],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=PUBLISHED,
    )


def _row(agent: AgentSpec) -> PublishedAgent:
    return PublishedAgent(
        name=agent.name,
        description=agent.description,
        fingerprint=agent.fingerprint,
        input_schema=agent.input_schema,
        tools=[_tool(agent, tool) for tool in agent.tools],
        subagents=[child.name for child in agent.subagents],
        steps=None if agent.steps is None else list(agent.steps),
        published_at=Now(),
    )


def _tool(agent: AgentSpec, tool: ToolSpec) -> dict[str, Any]:
    """`approval` is what holds for this agent, which may ask for more than the tool."""
    return {
        "name": tool.name,
        "description": tool.description,
        "schema": tool.schema,
        "effect": tool.effect,
        "risk": tool.risk,
        "approval": agent.gates(tool.risk, asked=tool.approval),
        "sentence": tool.sentence,
        "deadline": tool.deadline,
        "secret_args": sorted(tool.secret_args),
        "secret_result": tool.secret_result,
    }
