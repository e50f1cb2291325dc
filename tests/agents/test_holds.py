"""Rules that stop an agent until a person continues it, and the definitions that are refused."""

from typing import Any

import pytest
from pydantic import BaseModel

from agents.errors import DefinitionError
from agents.sdk import Holds, agent, tool
from agents.sdk.scripts import (
    Reply,
    Turn,
    call,
    say,
    script,
)
from agents.testing import drive


class Nothing(BaseModel):
    pass


@tool(effect="read")
def look(n: int) -> int:
    """Look once more."""
    return n


@script
def curious(turn: Turn) -> Reply:
    done = len(turn.results)
    return call("look", n=done) if done < 3 else say("seen enough")


def looker(holds: Holds | None) -> Any:
    return agent(
        name="looker",
        description="Looks three times.",
        instructions="Look.",
        input=Nothing,
        model=curious,
        tools=[look],
        holds=holds,
    )


def why(holds: Holds, turn: int, seconds: float = 0.0) -> str:
    return holds.why(agent="a", turn=turn, seconds=seconds, messages=({"role": "input"},))


def test_a_number_of_replies_counts_each_of_them() -> None:
    holds = Holds(every=2)
    assert [bool(why(holds, turn)) for turn in range(5)] == [False, False, True, False, True]


def test_a_time_counts_from_the_first_reply_on() -> None:
    holds = Holds(after=60)
    assert [bool(why(holds, 1, at)) for at in (0, 59.9, 60)] == [False, False, True]
    assert not why(holds, 0, 100)


def test_a_condition_sees_the_messages_and_says_why() -> None:
    holds = Holds(when=lambda messages: "too long" if len(messages) > 0 else None)
    assert why(holds, 1) == "too long"
    assert why(Holds(when=lambda messages: None), 1) == ""


def test_an_agent_without_rules_never_stops() -> None:
    assert why(Holds(), 7, 1e9) == ""


def test_a_flow_stops_where_the_rule_says_and_goes_on() -> None:
    flow = drive(looker(Holds(every=2)), {})
    assert (flow.status, flow.gate.kind) == ("suspended", "hold")
    assert flow.gate.sentence == "looker stops after every 2 replies, and this was number 2"
    assert len(flow.calls) == 2
    flow.settle("continue")
    assert flow.output == "seen enough"


def test_stopping_a_flow_cancels_it() -> None:
    flow = drive(looker(Holds(every=1)), {}).settle("stop", reason="it only looks")
    assert (flow.status, flow.reason) == ("cancelled", "it only looks")


def test_a_condition_that_raises_stops_the_agent() -> None:
    def broken(messages: object) -> str:
        raise LookupError("no such message")

    flow = drive(looker(Holds(when=broken)), {})
    assert flow.gate.sentence == "The hold rules of looker failed: LookupError"


@pytest.mark.parametrize("holds", [Holds(every=0), Holds(after=0), Holds(after=float("inf"))])
def test_a_rule_that_cannot_work_is_refused(holds: Holds) -> None:
    with pytest.raises(DefinitionError, match="agent looker: holds"):
        looker(holds)
