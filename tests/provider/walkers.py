"""Agents that take as many steps as the slow provider's model asks for; the second asks a person before each."""

from pydantic import BaseModel

from agents.sdk import agent, tool
from agents.sdk.scripts import (
    Reply,
    Turn,
    call,
    say,
    script,
)


class Walk(BaseModel):
    name: str


@tool(effect="idempotent")
def step(number: int) -> str:
    """Take the next step."""
    return f"took step {number}"


@script
def walk(turn: Turn) -> Reply:
    """Without a provider one step is enough."""
    return say("Done.") if turn.result("step") else call("step", number=0)


walker = agent(
    name="walker",
    description="Walks.",
    instructions="Take every step, then say so.",
    input=Walk,
    model=walk,
    tools=[step],
)

careful_walker = agent(
    name="careful_walker",
    description="Walks, with permission.",
    instructions="Ask before every step, then say so.",
    input=Walk,
    model=walk,
    tools=[step],
    approvals="every_call",
)
