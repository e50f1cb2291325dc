"""The built-in agent of requests from outside: one call, which an instance performs after people approved it.

Every worker has it. The engine waits in place of the tool: for the instance to use the approval, then for its outcome.
"""

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from agents.errors import RegistryError, ToolError
from agents.registry import Registry
from agents.sdk import agent, tool
from agents.sdk.scripts import Turn, call, say, script, together
from runtime.core.documents import external_call as documents


class ExternalInput(BaseModel):
    """The request of an instance, as it sent it."""

    instance: str
    instance_name: str
    submitted: dict[str, str]
    created_at: str
    deadline_at: str
    valid_seconds: float


def _judge_risk(risk: str | None = None) -> str:
    """Return the risk of a call. What an agent outside says of it can only raise it."""
    return "high" if risk == "high" else "medium"


@tool(
    effect="write",
    approval=True,
    risk=_judge_risk,
    sentence="Let {instance_name} call {tool}",
)
def external_call(
    instance: str,
    instance_name: str,
    tool: str,
    arguments: dict[str, Any],
    server: str | None = None,
    risk: str | None = None,
) -> dict[str, Any]:
    """Let an agent outside make one call of its own."""
    raise ToolError("an instance outside performs this call")


@script
def _ask_once(turn: Turn) -> Any:
    if turn.results:
        result = turn.results[-1]
        if result.denied:
            return say(result.content)
        ending = "The call succeeded" if result.ok else "The call failed"
        note = result.content.get("note") if isinstance(result.content, dict) else result.content
        return say(f"{ending}: {note}" if note else f"{ending}.")
    proposal = call(documents.TOOL, **documents.read_call_arguments(turn.input))
    reasoning = documents.read_submitted_field(turn.input, "agent_reasoning")
    return together(say(reasoning), proposal) if reasoning and reasoning.strip() else proposal


EXTERNAL_AGENT = replace(
    agent(
        name=documents.AGENT,
        description="Stands for an agent outside that asks for the approval of one call.",
        instructions="Ask for the call, and report what became of it.",
        input=ExternalInput,
        model=_ask_once,
        tools=[replace(external_call, waits="instance")],
    ),
    is_code=True,
)


def with_external_agent(registry: Registry) -> Registry:
    """Return the registry with the built-in agent. Raise RegistryError if another agent has its name."""
    if EXTERNAL_AGENT.name in registry.agents:
        raise RegistryError(f"{EXTERNAL_AGENT.name} is the name of a built-in agent: use another")
    return Registry(agents={**registry.agents, EXTERNAL_AGENT.name: EXTERNAL_AGENT})
