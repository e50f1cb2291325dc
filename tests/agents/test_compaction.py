"""Compaction as an author declares it: by a function of theirs or by the agent's own model."""

from typing import Any

import pytest
from pydantic import BaseModel

from agents.errors import DefinitionError
from agents.sdk import Compaction, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.sdk.spec import AgentSpec
from agents.testing import drive
from tests.support.specs import spec_of


class Count(BaseModel):
    to: int


@tool(effect="read")
def step(number: int) -> int:
    """Count."""
    return number


@script
def counts(turn: Turn) -> Reply:
    """Counts by its conversation: the summary of removed messages, and the last result."""
    if turn.sums_up:
        return say(f"{turn.results[-1].content}")
    done = turn.results[-1].content if turn.results else int(turn.summary or 0)
    if done == turn.input["to"]:
        return say(f"counted to {done}, of which {turn.summary or 0} are summed up")
    return call("step", number=done + 1)


def summed_up(messages: tuple[dict[str, Any], ...]) -> str:
    """Summarise as an author's function: return the last result if it is the requested one."""
    asked = messages[-2]["reply"]["parts"][-1]["args"]["number"]
    assert messages[-1]["results"][-1]["content"] == asked
    return str(asked)


def counter(compaction: Compaction) -> AgentSpec:
    return spec_of("counter", input=Count, model=counts, tools=[step], compaction=compaction)


@pytest.mark.parametrize("summarise", [None, summed_up], ids=["model", "author"])
def test_a_frame_goes_on_from_its_summary(summarise: Any) -> None:
    flow = drive(counter(Compaction(messages=5, summarise=summarise)), {"to": 6})
    assert flow.output == "counted to 6, of which 5 are summed up"
    assert [made.args["number"] for made in flow.calls] == [1, 2, 3, 4, 5, 6]


def test_an_error_of_a_summary_function_fails_the_run() -> None:
    def broken(messages: tuple[dict[str, Any], ...]) -> str:
        raise KeyError("result")

    flow = drive(counter(Compaction(messages=5, summarise=broken)), {"to": 6})
    assert flow.status == "failed"
    assert "KeyError: 'result'" in (flow.reason or "")


@pytest.mark.parametrize("wrong", [Compaction(), Compaction(messages=3), Compaction(bytes=999)])
def test_a_compaction_that_cannot_work_is_refused(wrong: Compaction) -> None:
    with pytest.raises(DefinitionError, match="agent counter: compaction"):
        counter(wrong)
