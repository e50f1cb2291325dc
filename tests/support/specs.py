"""Agents and tool requests for tests to which most of their parts do not matter."""

from typing import Any

from pydantic import BaseModel

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from agents.sdk import agent, tool
from agents.sdk.scripts import Reply, Turn, say, script
from agents.sdk.spec import AgentSpec
from runtime.core.events import Proposal
from runtime.ports.effects import ToolRequest
from tests.support.frames import RUN

NEWCOMER: dict[str, Any] = {
    "full_name": "New Hire",
    "email": "new.hire@example.com",
    "username": "new.hire",
    "security_level": 3,
}
CREATE = Proposal(
    tool="create_account",
    args={"full_name": "New Hire", "email": "new.hire@example.com", "username": "new.hire"},
)


class Input(BaseModel):
    name: str


class Question(BaseModel):
    text: str


@script
def silent(_: Turn) -> Reply:
    """Answer for any agent."""
    return say("")


def spec_of(name: str = "a", **given: Any) -> AgentSpec:
    """An agent with these parts."""
    plain = {"description": "A.", "instructions": "Do.", "input": Input, "model": silent}
    return agent(name=name, **{**plain, **given})


def registry_of(*specs: AgentSpec) -> Registry:
    return Registry(agents={spec.name: spec for spec in specs})


def handler_of(*specs: AgentSpec) -> AgentEffects:
    """The handler of a worker, which leaves the connections of Django as they are."""
    return AgentEffects(registry_of(*specs), close_connections=lambda: None)


def tool_request(agent: str, tool: str, args: Any, **given: Any) -> ToolRequest:
    """The first call of a run."""
    call = {"run": RUN, "frame": "0", "call": "c1.0", "attempt": 1, "deadline": 5.0, **given}
    key = f"{call['run']}/0/{call['call']}"
    return ToolRequest(agent=agent, tool=tool, args=args, **{"key": key, **call})


@tool(effect="idempotent", risk="medium", sentence="Greet {name}")
def greet(name: str) -> str:
    """Greet somebody."""
    return name


def child(description: str = "Helps.") -> AgentSpec:
    return spec_of("helper", description=description)


def version(**changed: Any) -> AgentSpec:
    """A version of an agent that has a tool and a sub-agent."""
    parts = {"instructions": "Greet.\nBe kind.", "tools": [greet], "subagents": [child()]}
    return spec_of(**{"name": "greeter", **parts, **changed})
