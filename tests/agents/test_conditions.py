"""Functions of the arguments judge the risk and the approval of each call; a failure counts as the strictest."""

import threading
from typing import Any

import pytest

from agents.catalogue.published import _describe_tool
from agents.catalogue.versions import list_changes
from agents.errors import DefinitionError
from agents.management.commands.agents import SOME_ASKED
from agents.management.commands.agents import _format_tool as listed
from agents.sdk import conditions, tool
from agents.sdk.spec import DEPENDS, AgentSpec
from agents.testing import Flow, call, drive, say
from runtime.core.run.events import GateOpened
from runtime.core.values.enums import Risk
from tests.support.specs import spec_of

limits: dict[str, Any] = {}
paid: list[int] = []


def _risk(euros: int, **_: Any) -> Any:
    return limits["risk"](euros)


def _asks(euros: int) -> Any:
    return limits["approval"](euros)


@tool(risk=_risk, approval=_asks)
def pay(to: str, euros: int) -> int:
    """Pays."""
    paid.append(euros)
    return euros


@pytest.fixture(autouse=True)
def usual() -> None:
    paid.clear()
    limits["risk"] = lambda euros: "high" if euros >= 100 else Risk.LOW
    limits["approval"] = lambda euros: euros > 10


def desk(**given: Any) -> AgentSpec:
    return spec_of("desk", tools=[pay], **given)


def at_desk(euros: int, **given: Any) -> Flow:
    steps = [call("pay", to="bea", euros=euros), say("done")]
    return drive(desk(**given), {"name": "A-1"}, model=steps)


def test_each_call_is_judged_by_its_arguments() -> None:
    assert at_desk(10).status == "completed"
    found = [(gate.risk, gate.preview) for euros in (11, 100) for gate in at_desk(euros).gates]
    assert found == [("low", None), ("high", None)]
    assert at_desk(10, approvals="medium").status == "completed"
    limits["approval"] = lambda euros: False
    assert at_desk(100, approvals="medium").gates


@pytest.mark.parametrize(
    ("which", "condition", "said"),
    [
        ("risk", lambda euros: {}[euros], "KeyError: 5"),
        ("risk", lambda euros: "grave", "ValueError: 'grave' is not one of low, medium, high"),
        ("risk", lambda euros: exit(1), "RuntimeError: SystemExit: 1"),
        ("approval", lambda euros: None, "TypeError: None is not True or False"),
        ("approval", lambda euros: threading.Event().wait(), "it took longer than 0.01 s"),
    ],
)
def test_a_failed_condition_asks_a_person_and_is_named(
    which: str, condition: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "longer" in said:
        monkeypatch.setattr(conditions, "LIMIT", 0.01)
    limits[which] = condition
    flow = at_desk(5)
    [gate] = flow.gates
    assert gate.risk is Risk.HIGH
    assert gate.preview is not None
    assert gate.preview["unjudged"].startswith(f"The {which} condition of pay failed: ")
    assert gate.preview["unjudged"].endswith(said)
    [opened] = [event for event in flow.events if isinstance(event, GateOpened)]
    assert opened.reason == gate.preview["unjudged"]


def test_a_secret_argument_is_not_in_the_failure() -> None:
    @tool(risk=lambda code: {}[code], secret_args=["code"])
    def unlock(code: str) -> str:
        """Unlocks."""
        return "open"

    flow = drive(
        spec_of("desk", tools=[unlock]), {"name": "A"}, model=[call("unlock", code="s3cret-7")]
    )
    [gate] = flow.gates
    assert gate.preview == {"unjudged": "The risk condition of unlock failed: KeyError: '••••'"}


@pytest.mark.parametrize(("now", "asked"), [("medium", [20]), ("low", []), ("high", [20])])
def test_an_approval_counts_only_for_the_risk_that_was_approved(now: str, asked: list[int]) -> None:
    limits["risk"] = lambda euros: "low"
    flow = at_desk(20)
    limits["risk"] = lambda euros: now
    flow.approve()
    assert [gate.args["euros"] for gate in flow.gates] == asked
    assert paid == ([] if asked else [20])
    if asked:
        flow.approve()
        assert paid == [20]


@pytest.mark.parametrize(
    ("condition", "values"), [("approval", [False, True, True]), ("risk", ["low", "high", "high"])]
)
def test_a_call_that_needs_a_person_by_its_start_waits(condition: str, values: list[Any]) -> None:
    given = iter(values)
    limits["approval"] = lambda euros: False
    limits[condition] = lambda euros: next(given)
    flow = at_desk(5)
    assert ([gate.args["euros"] for gate in flow.gates], paid) == ([5], [])


def test_conditions_are_part_of_the_version_and_of_the_catalogue() -> None:
    agent = desk()
    [defined] = agent.definition["tools"]
    assert (defined["risk"], defined["approval"]) == (DEPENDS, DEPENDS)
    assert _describe_tool(agent, pay)["depends"] == ["risk", "approval"]
    assert (_describe_tool(agent, pay)["risk"], _describe_tool(agent, pay)["approval"]) == (
        "high",
        True,
    )
    assert _describe_tool(desk(approvals="every_call"), pay)["depends"] == ["risk"]
    assert SOME_ASKED in listed(agent, pay)
    always = spec_of("desk", tools=[pay.with_settings(approval=True)])
    assert [one.asks for one in list_changes(agent.definition, always.definition)] == [False]
    assert [one.asks for one in list_changes(always.definition, agent.definition)] == [True]
    assert pay.with_settings(approval=False).waived


def spend(euros: int) -> int:
    """Pays."""
    return euros


@pytest.mark.parametrize(
    ("before", "after"), [("low", "high"), ("high", "low"), ("low", DEPENDS), (DEPENDS, "high")]
)
def test_another_risk_asks_before_a_run_continues(before: str, after: str) -> None:
    def of(risk: str) -> dict[str, Any]:
        return {"tools": [{"name": "pay", "risk": risk}]}

    assert [one.asks for one in list_changes(of(before), of(after))] == [True]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"risk": lambda amount: "low"}, "risk takes amount, which is not an argument of the tool"),
        ({"approval": lambda *euros: True}, "approval takes euros, which is not an argument"),
        ({"approval": "yes"}, "approval must be a valid boolean or callable"),
        ({"risk": "grave"}, "'grave' is not one of low, medium, high"),
    ],
)
def test_a_condition_takes_arguments_of_its_tool(given: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        tool(**given)(spend)
