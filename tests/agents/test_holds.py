"""Rules that stop an agent until a person continues it, and the definitions that are refused."""

from typing import Any

import pytest
from pydantic import BaseModel

from agents.errors import DefinitionError
from agents.sdk import Holds, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.testing import drive
from tests.support.specs import spec_of


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
    return spec_of("looker", input=Nothing, model=curious, tools=[look], holds=holds)


def why(holds: Holds, turn: int, seconds: float = 0.0) -> str:
    return holds.why(agent="a", turn=turn, seconds=seconds, messages=({"role": "input"},))


def test_rules_count_replies_and_time_and_look_at_messages() -> None:
    every, after = Holds(every=2), Holds(after=60)
    assert [bool(why(every, turn)) for turn in range(5)] == [False, False, True, False, True]
    assert [bool(why(after, 1, at)) for at in (0, 59.9, 60)] == [False, False, True]
    assert not why(after, 0, 100)  # it counts from the first reply on
    assert why(Holds(when=lambda messages: "too long" if messages else None), 1) == "too long"
    assert why(Holds(when=lambda messages: None), 1) == ""
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
