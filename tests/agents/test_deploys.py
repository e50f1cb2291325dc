"""A release while a call waits for a person: what asks, and which approvals survive."""

from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import Field

from agents.sdk import tool
from agents.sdk.spec import AgentSpec, ToolSpec
from agents.testing import Flow, call, drive, say
from runtime.core.run.events import AgentChanged, GateOpened
from tests.support.specs import child, spec_of

paid: list[tuple[str, int, str]] = []


@tool(effect="idempotent", risk="medium", approval=True)
def pay(to: str, euros: int) -> str:
    """Pay."""
    paid.append((to, euros, ""))
    return "paid"


def with_note(to: str, euros: int, note: str = "none") -> str:
    """Pay, with a note."""
    paid.append((to, euros, note))
    return "paid"


def with_reason(to: str, euros: int, reason: str) -> str:
    """Pay for a reason."""
    return "paid"


def limited(to: str, euros: Annotated[int, Field(le=100)]) -> str:
    """Pay."""
    paid.append((to, euros, ""))
    return "paid"


def _other(name: str = "pay", function: Any = pay.function, text: str = "", **to: Any) -> ToolSpec:
    facts = {"effect": "idempotent", "risk": "medium", "approval": True, **to}
    made = tool(**facts)(function)
    return replace(made, name=name, description=text or made.description)


def desk(*tools: ToolSpec, **given: Any) -> AgentSpec:
    parts = {"tools": tools or (pay, _other("lend")), "instructions": "Pya.", **given}
    return spec_of("desk", subagents=[child()], **parts)


def _released(newer: AgentSpec) -> Flow:
    """A run that waits for an approval, which a person gives after the release."""
    paid.clear()
    steps = [call("pay", to="bea", euros=40), say("done")]
    return drive(desk(), {"name": "A-1"}, model=steps).deploy(newer).approve()


def _gates(flow: Flow) -> list[str]:
    return [str(event.kind) for event in flow.events if isinstance(event, GateOpened)]


LEND = _other("lend")
COMPATIBLE = {
    "a typo in the instructions": (desk(instructions="Pay."), ""),
    "the tool in other words": (desk(_other(text="Pay money."), LEND), ""),
    "an optional argument of the tool": (desk(_other(function=with_note), LEND), "none"),
    "another tool is added": (desk(pay, LEND, _other("beg")), ""),
}
OTHERS = {
    "another tool is gone": desk(pay),
    "the class of another tool": desk(pay, _other("lend", effect="write")),
    "the risk of another tool": desk(pay, _other("lend", risk="high")),
    "a required argument of another tool": desk(pay, _other("lend", function=with_reason)),
    "another model": desk(pay, LEND, models=("openai:gpt-5",)),
}
OWN = {
    "its class": desk(_other(effect="write"), LEND),
    "a limit of an argument": desk(_other(function=limited), LEND),
    "a higher risk": desk(_other(risk="high"), LEND),
}


@pytest.mark.parametrize(("newer", "note"), COMPATIBLE.values(), ids=COMPATIBLE)
def test_a_compatible_release_asks_nothing_and_is_journaled(newer: AgentSpec, note: str) -> None:
    flow = _released(newer)
    assert (flow.status, _gates(flow), paid) == ("completed", ["approval"], [("bea", 40, note)])
    (changed,) = [event for event in flow.events if isinstance(event, AgentChanged)]
    assert changed.fingerprint != changed.before
    assert [change.asks for change in changed.changes] == [False] * len(changed.changes) != []


@pytest.mark.parametrize("newer", OTHERS.values(), ids=OTHERS)
def test_an_approval_survives_changes_of_other_tools(newer: AgentSpec) -> None:
    flow = _released(newer)
    assert (flow.gate.kind, paid) == ("version", [])
    flow.settle("continue")
    assert (flow.status, _gates(flow)) == ("completed", ["approval", "version"])
    assert paid == [("bea", 40, "")]


@pytest.mark.parametrize("newer", OWN.values(), ids=OWN)
def test_an_approval_is_asked_again_where_its_own_tool_changed(newer: AgentSpec) -> None:
    flow = _released(newer)
    assert flow.gate.kind == "version"
    flow.settle("continue")
    assert (flow.gate.kind, flow.gate.tool, paid) == ("approval", "pay", [])
    assert flow.approve().status == "completed"
    assert paid == [("bea", 40, "")]


def test_a_new_required_argument_refuses_the_approved_call() -> None:
    flow = _released(desk(_other(function=with_reason), LEND))
    assert flow.gate.kind == "version"
    assert (flow.settle("continue").status, paid) == ("completed", [])
    assert "CallRefused" in [event.type for event in flow.events]
