"""Lists agents over the API, with their schemas and tools, for programs that start runs."""

from datetime import datetime
from typing import Annotated, Any

from ninja import Router, Schema
from pydantic import WithJsonSchema

from agents.catalogue import queries
from runtime.core.values.enums import EffectClass, Risk
from runtime.ports import wiring
from runtime.web.requests import Authenticated

router = Router(tags=["agents"])


class ToolOut(Schema):
    """One tool of an agent. Each attempt of a call has `deadline` seconds.

    `effect` is the effect class: it decides whether a call may be repeated after its outcome was lost. `approval` says
    whether a person approves each call. `depends` names those of `risk` and `approval` that the arguments decide for
    each call; their own fields then have the strictest value.
    """

    name: str
    description: str
    input_schema: Any
    effect: Annotated[str, WithJsonSchema({"type": "string", "enum": [*EffectClass]})]
    risk: Annotated[str, WithJsonSchema({"type": "string", "enum": [*Risk]})]
    approval: bool
    depends: list[str] = []
    deadline: float


class AgentOut(Schema):
    """An agent as a worker published it last. `fingerprint` names this version of it.

    `output_schema` is null for an agent that answers with text.
    """

    name: str
    description: str
    fingerprint: str
    published_at: datetime
    input_schema: Any
    output_schema: Any
    tools: list[ToolOut]
    subagents: list[str]


class AgentList(Schema):
    """All published agents, by name."""

    items: list[AgentOut]


@router.get("/agents", response=AgentList)
def list_agents(request: Authenticated) -> dict[str, Any]:
    """List the agents with their schemas; for people who start runs or decide, and admins."""
    wiring.resolve_access().require_agents(request.auth)
    return {"items": queries.list_agent_documents()}
