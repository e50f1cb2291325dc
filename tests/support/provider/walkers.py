"""Agents that take as many steps as the slow provider's model asks for; the second asks a person before each."""

from agents.sdk import tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from tests.support.specs import spec_of


@tool(effect="idempotent")
def step(number: int) -> str:
    """Take the next step."""
    return f"took step {number}"


@script
def walk(turn: Turn) -> Reply:
    """Without a provider one step is enough."""
    return say("Done.") if turn.result("step") else call("step", number=0)


walker = spec_of("walker", instructions="Walk.", model=walk, tools=[step])

careful_walker = spec_of(
    "careful_walker", instructions="Ask.", model=walk, tools=[step], approvals="every_call"
)
