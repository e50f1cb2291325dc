"""Agents whose tools end their process or never return, and one that takes a few quiet steps."""

import os
import threading
import time

from pydantic import BaseModel

from agents.sdk import tool
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from tests.support.specs import spec_of

STEPS = 3


class Calls(BaseModel):
    number: int


@tool(effect="idempotent")
def end_it_all(number: int) -> str:
    """Ends the process it runs in."""
    os.abort()


@tool(effect="write", deadline=1.0)
def hang(number: int) -> str:
    """Never return."""
    threading.Event().wait()
    return ""


@tool(effect="idempotent")
def tick(number: int) -> int:
    """Takes a moment."""
    time.sleep(0.2)  # a call that takes this long is what is under way when the worker dies
    return number


@script
def deadly(turn: Turn) -> Reply:
    return call("end_it_all", number=turn.input["number"])


@script
def hanging(turn: Turn) -> Reply:
    """Make as many calls at once as its input says."""
    if turn.results:
        return say("It returned.")
    return together(*(call("hang", number=number) for number in range(turn.input["number"])))


@script
def quiet(turn: Turn) -> Reply:
    done = len(turn.results)
    return call("tick", number=done) if done < STEPS else say("Done.")


ends_it_all = spec_of("ends_it_all", input=Calls, model=deadly, tools=[end_it_all])
hangs = spec_of("hangs", input=Calls, model=hanging, tools=[hang])
ticks = spec_of("ticks", input=Calls, model=quiet, tools=[tick])
