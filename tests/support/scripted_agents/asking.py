"""An agent that asks a person for a number, charges it once a person approves, and answers questions about that."""

from functools import partial

from pydantic import BaseModel, Field

from agents.sdk import tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.tools.questions import ask_person
from tests.support.specs import spec_of


class CostCentre(BaseModel):
    """Who pays."""

    number: int = Field(ge=1000)


ask_cost_centre = ask_person(CostCentre, name="ask_cost_centre")


@tool(effect="idempotent", risk="medium", approval=True, sentence="Charge cost centre {number}")
def charge(number: int) -> int:
    """Charge a cost centre."""
    return number


def _told(turn: Turn) -> int:
    answer = turn.result("ask_cost_centre")
    assert answer is not None
    number: int = answer.content["number"]
    return number


def _explain(turn: Turn) -> str:
    return f"A person told me {_told(turn)}."


@partial(script, answers=_explain)
def _play(turn: Turn) -> Reply:
    charged = turn.result("charge")
    if not turn.results:
        return call("ask_cost_centre", question="Which cost centre pays?")
    return call("charge", number=_told(turn)) if charged is None else say(f"{charged.content}!")


asks = spec_of("asks", tools=[ask_cost_centre, charge], model=_play)
