"""Agents for workers that die: one whose tool ends its process, and one that takes a few quiet steps."""

import os
import time

from pydantic import BaseModel

from agents.sdk import ToolContext, agent, tool
from agents.sdk.scripts import (
    Reply,
    Turn,
    call,
    say,
    script,
)

STEPS = 3


class Errand(BaseModel):
    name: str


@tool(effect="idempotent")
def end_it_all(context: ToolContext, name: str) -> str:
    """Ends the process it runs in."""
    os.abort()


@tool(effect="idempotent")
def tick(context: ToolContext, name: str, step: int) -> int:
    """Takes a moment."""
    time.sleep(0.2)  # a call that takes this long is what is under way when the worker dies
    return step


@script
def deadly(turn: Turn) -> Reply:
    """Plays poison_deadly."""
    return call("end_it_all", name=turn.input["name"])


@script
def quiet(turn: Turn) -> Reply:
    """Plays poison_quiet."""
    done = len(turn.results)
    return call("tick", name=turn.input["name"], step=done) if done < STEPS else say("Done.")


poison_deadly = agent(
    name="poison_deadly",
    description="Ends its worker.",
    instructions="End it.",
    input=Errand,
    model=deadly,
    tools=[end_it_all],
)

poison_quiet = agent(
    name="poison_quiet",
    description="Takes a few steps.",
    instructions="Tick.",
    input=Errand,
    model=quiet,
    tools=[tick],
)
