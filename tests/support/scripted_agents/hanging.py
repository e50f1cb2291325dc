"""An agent that makes as many calls at once as it is told, none of which returns, and one that needs a free slot."""

import threading

from pydantic import BaseModel

from agents.sdk import tool
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from tests.support.specs import spec_of


class Calls(BaseModel):
    number: int


@tool(effect="write", deadline=1.0)
def hang(number: int) -> str:
    """Never return."""
    threading.Event().wait()
    return ""


@tool(effect="write")
def answer(number: int) -> str:
    """Return at once."""
    return str(number)


@script
def hanging(turn: Turn) -> Reply:
    """Plays hangs."""
    if turn.results:
        return say("It returned.")
    return together(*(call("hang", number=number) for number in range(turn.input["number"])))


@script
def answering(turn: Turn) -> Reply:
    """Plays answers."""
    return say("Answered.") if turn.results else call("answer", number=turn.input["number"])


hangs = spec_of("hangs", input=Calls, model=hanging, tools=[hang])

answers = spec_of("answers", input=Calls, model=answering, tools=[answer])
