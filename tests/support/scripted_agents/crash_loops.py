"""Agents for workers that die: one whose tool ends its process, and one that takes a few quiet steps."""

import os
import time

from agents.sdk import ToolContext, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from tests.support.specs import spec_of

STEPS = 3


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


poison_deadly = spec_of("poison_deadly", model=deadly, tools=[end_it_all])

poison_quiet = spec_of("poison_quiet", model=quiet, tools=[tick])
