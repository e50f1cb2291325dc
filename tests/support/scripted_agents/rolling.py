"""An agent in two releases that notes twice, each time after an approval; the newer one has another tool as well."""

import os

from agents.sdk import ToolContext, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from tests.support.scripted_agents import ledger
from tests.support.specs import spec_of

NEWER = "ABEYANCE_FAULTS_NEWER"  # in the environment of a process that has the newer release


@tool(effect="write", approval=True)
def note_down(context: ToolContext, name: str, step: int) -> str:
    """Write a line into the ledger."""
    ledger.note(f"{name}/{step}", context.attempt)
    return "noted"


@tool(effect="read")
def look_up(name: str) -> str:
    """Look something up."""
    return name


@script
def noting(turn: Turn) -> Reply:
    step = len(turn.results) + 1
    return call("note_down", name=turn.input["name"], step=step) if step <= 2 else say("Done.")


TOOLS = [note_down, look_up] if NEWER in os.environ else [note_down]
additive = spec_of("additive", model=noting, tools=TOOLS)
