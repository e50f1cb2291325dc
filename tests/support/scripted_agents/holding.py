"""Agents whose one tool holds until a test lets go of it, and a ledger of every start, outside the application.

The ledger and the files that let go are in the folder that HOLDING_FOLDER names."""

import os
import time
from pathlib import Path

from django.db import connection

from agents.sdk import ToolContext, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from tests.support.specs import spec_of

FOLDER = "HOLDING_FOLDER"
DEADLINE = 120.0


@tool(effect="idempotent", deadline=DEADLINE)
def hold_again(context: ToolContext, name: str) -> str:
    """Hold until the test ends it; may be started again."""
    return _hold("hold_again", name)


@tool(effect="write", deadline=DEADLINE)
def hold_once(context: ToolContext, name: str) -> str:
    """Hold until the test ends it; a second start is not known to be safe."""
    return _hold("hold_once", name)


@tool(effect="write")
def note(context: ToolContext, name: str) -> str:
    """The call after the one that holds."""
    write("note", "begin", name)
    return "noted"


@script
def again(turn: Turn) -> Reply:
    """Plays patient_again."""
    return _next(turn, "hold_again")


@script
def once(turn: Turn) -> Reply:
    """Plays patient_once."""
    return _next(turn, "hold_once")


patient_again = spec_of("patient_again", model=again, tools=[hold_again, note])

patient_once = spec_of("patient_once", model=once, tools=[hold_once, note])


def write(tool_name: str, what: str, name: str) -> None:
    """One line, on the disk before anything else happens."""
    line = f"{name} {tool_name} {what} {os.getpid()}\n"
    handle = os.open(Path(os.environ[FOLDER], "ledger"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def _hold(tool_name: str, name: str) -> str:
    write(tool_name, "begin", name)
    while not Path(os.environ[FOLDER], f"{name}.go").exists():
        # Between two looks at what another process makes; the tool's deadline ends it.
        time.sleep(0.02)
    write(tool_name, "end", name)
    return "held"


def _next(turn: Turn, hold: str) -> Reply:
    if turn.result(hold) is None:
        return call(hold, name=turn.input["name"])
    if turn.result("note") is None:
        return call("note", name=turn.input["name"])
    return say("Done.")


SECONDS = 0.3


@tool(effect="write")
def ask_postgres(context: ToolContext, name: str) -> str:
    """Keep a connection busy."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [SECONDS])
    write("ask_postgres", "begin", name)
    return "asked"


@script
def ask(turn: Turn) -> Reply:
    """Plays borrower."""
    if turn.result("ask_postgres"):
        return say("Done.")
    return call("ask_postgres", name=turn.input["name"])


borrower = spec_of("borrower", model=ask, tools=[ask_postgres])
