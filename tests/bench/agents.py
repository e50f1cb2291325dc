"""Agents for measuring: one that only takes steps, of a given number and size."""

from pydantic import BaseModel

from agents.gateway.scripted import Reply, Turn, call, say, script
from agents.sdk import agent, tool


class Walk(BaseModel):
    """Turns of one call each, and the bytes each is given and gives back; `gate` adds one behind a gate."""

    turns: int
    given: int
    got: int
    gate: bool = False


@tool(effect="read")
def step(text: str, got: int) -> str:
    """Give back so many bytes."""
    return "x" * got


@tool(effect="idempotent", approval=True)
def gated(text: str, got: int) -> str:
    """The same, behind a gate."""
    return "x" * got


@script
def walk(turn: Turn) -> Reply:
    """Plays walker."""
    return _next(turn, "step")


@script
def climb(turn: Turn) -> Reply:
    """Plays climber."""
    return _next(turn, "gated")


walker = agent(
    name="walker",
    description="Takes steps.",
    instructions="Take as many steps as you are told.",
    input=Walk,
    model=walk,
    tools=[step, gated],
)

climber = agent(
    name="climber",
    description="Takes steps behind gates.",
    instructions="Take as many steps as you are told.",
    input=Walk,
    model=climb,
    tools=[gated],
)


def _next(turn: Turn, tool_name: str) -> Reply:
    wanted = turn.input
    gate = wanted.get("gate", False)
    left = wanted["turns"] + gate - len(turn.results)
    if left == 0:
        return say("Done.")
    name = "gated" if gate and left == 1 else tool_name
    return call(name, text="x" * wanted["given"], got=wanted["got"])
