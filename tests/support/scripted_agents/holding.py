"""Agents whose tools wait for the test, hang, end their process, take a moment, or need an approval.

In the ledger a call is `name/tool` when it begins, and a call that held is `name/tool/end` when it ends. A test lets go
of it by a file beside the ledger."""

import os
import threading
import time
from collections.abc import Sequence

from django.db import connection
from pydantic import BaseModel

from agents.sdk import ToolContext, tool
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from agents.sdk.spec import AgentSpec, ToolSpec
from tests.support.scripted_agents import ledger
from tests.support.specs import spec_of

DEADLINE = 120.0
SECONDS = 0.3
NEWER = "SIGNOFF_FAULTS_NEWER"  # in the environment of a process that has the newer release of `additive`


@tool(effect="idempotent", deadline=DEADLINE)
def hold_again(context: ToolContext, name: str) -> str:
    """Hold until the test ends it; may be started again."""
    return _hold(f"{name}/hold_again", context.attempt)


@tool(effect="write", deadline=DEADLINE)
def hold_once(context: ToolContext, name: str) -> str:
    """Hold until the test ends it; a second start is not known to be safe."""
    return _hold(f"{name}/hold_once", context.attempt)


@tool(effect="write")
def note(context: ToolContext, name: str) -> str:
    """The call after the one that holds."""
    ledger.note(f"{name}/note", context.attempt)
    return "noted"


@tool(effect="write")
def ask_postgres(context: ToolContext, name: str) -> str:
    """Keep a connection busy."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [SECONDS])
    ledger.note(f"{name}/ask_postgres", context.attempt)
    return "asked"


@tool(effect="write", approval=True)
def note_down(context: ToolContext, name: str) -> str:
    """Write a line into the ledger, after an approval."""
    ledger.note(f"{name}/{context.call}", context.attempt)
    return "noted"


@tool(effect="read")
def look_up(name: str) -> str:
    """Look something up."""
    return name


@tool(effect="idempotent", deadline=DEADLINE)
def hold_and_linger(context: ToolContext, name: str) -> str:
    """Hold until the test ends it, then take a second; may be started again."""
    _hold(f"{name}/hold_and_linger", context.attempt)
    time.sleep(1.0)  # as slow as a request to another machine
    return "held"


@tool(effect="idempotent", deadline=DEADLINE)
def end_it_when_told(context: ToolContext, name: str) -> str:
    """Ends the process it runs in, the first time when the test says so."""
    if context.attempt == 1:
        _hold(f"{name}/end_it_when_told", context.attempt)
    os.abort()


@tool(effect="idempotent")
def tick(name: str) -> str:
    """Takes a moment."""
    time.sleep(0.2)  # a call that takes this long is what is under way when the worker dies
    return name


@tool(effect="write", deadline=1.0)
def hang(number: int) -> str:
    """Never return."""
    threading.Event().wait()
    return ""


class Calls(BaseModel):
    number: int


@script
def hanging(turn: Turn) -> Reply:
    """Make as many calls at once as its input says."""
    if turn.results:
        return say("It returned.")
    return together(*(call("hang", number=number) for number in range(turn.input["number"])))


def _calling(name: str, *calls: ToolSpec, spare: Sequence[ToolSpec] = ()) -> AgentSpec:
    """An agent that makes these calls one after the other; it never calls its `spare` tools."""

    @script
    def play(turn: Turn) -> Reply:
        done = len(turn.results)
        if done == len(calls):
            return say("Done.")
        return call(calls[done].name, name=turn.input["name"])

    return spec_of(name, model=play, tools=list(dict.fromkeys((*calls, *spare))))


lingering = _calling("lingering", hold_and_linger)
patient_again = _calling("patient_again", hold_again, note)
patient_once = _calling("patient_once", hold_once, note)
borrower = _calling("borrower", ask_postgres)
ends_it_later = _calling("ends_it_later", end_it_when_told)
ticks = _calling("ticks", tick, tick, tick)
additive = _calling(
    "additive", note_down, note_down, spare=[look_up] if NEWER in os.environ else []
)
hangs = spec_of("hangs", input=Calls, model=hanging, tools=[hang])


def _hold(key: str, attempt: int) -> str:
    ledger.note(key, attempt)
    while not ledger.is_marked(f"{key.partition('/')[0]}.go"):
        # Between two looks at what another process makes; the tool's deadline ends it.
        time.sleep(0.02)
    ledger.note(f"{key}/end", attempt)
    return "held"
