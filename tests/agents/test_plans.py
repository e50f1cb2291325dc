"""An agent with a plan: its model is reminded each turn, a crash repeats nothing, and no person is asked about it."""

from typing import Any

import pytest

from agents.errors import DefinitionError
from agents.sdk import tool
from agents.sdk.scripts import Reply, Turn
from agents.testing import call, drive, say, together
from runtime.core.run.continuation import PlanItem
from runtime.core.run.events import CallRefused, ToolFailed, ToolReturned
from tests.support.specs import Input, spec_of

WRITE = call("plan", write=["Book the room", "Pay it"])
seen: list[tuple[str, ...]] = []


@tool(approval=True, sentence="Pay")
def pay(note: str = "") -> str:
    """Pays."""
    return "paid"


@tool(effect="read")
def look() -> str:
    """Looks."""
    return "x" * 200


def noting(reply: Reply) -> Any:
    def note(turn: Turn) -> Reply:
        seen.append(turn.plan)
        return reply

    return note


def planner(*model: Any, name: str = "planner", **more: Any) -> Any:
    seen.clear()
    given = {"tools": [pay, look], "plan": True} | more
    return spec_of(name, model=None, **given), [noting(reply) for reply in model]


def driven(*model: Any, crash: str = "", **more: Any) -> Any:
    spec, replies = planner(*model, **more)
    return drive(spec, {"name": "x"}, model=replies, crash_before=[crash], crash_after=[crash])


def test_the_model_is_reminded_of_the_open_items_each_turn() -> None:
    run = driven(WRITE, call("plan", done=[1], doing=2), call("look"), say("done"))
    assert seen == [(), ("Book the room", "Pay it"), ("Pay it",), ("Pay it",)]
    assert run.output == "done"
    assert not run.gates


def test_a_lost_worker_repeats_no_change() -> None:
    model = [WRITE, together(call("plan", done=[1]), call("plan", add=["Tell her"])), call("pay")]
    run = driven(*model, say("done"), crash="plan")
    assert run._worker.now.root.todo == (
        PlanItem(text="Book the room", state="done"),
        PlanItem(text="Pay it"),
        PlanItem(text="Tell her"),
    )
    kept = [one for one in run.events if isinstance(one, ToolReturned)]
    assert len(kept) == 3
    assert run.gate.preview == {"plan": {"item": "Pay it", "number": 2, "of": 3}}
    assert run.approve().output == "done"


@pytest.mark.parametrize("crash", ["", "plan"])
def test_a_call_belongs_to_the_item_that_its_own_turn_says_before_it(crash: str) -> None:
    turn = together(call("pay"), call("plan", done=[1], doing=2), call("pay", note="rest"))
    run = driven(WRITE, turn, say("done"), crash=crash)
    assert [one.preview["plan"]["number"] for one in run.gates] == [1, 2]
    assert run.approve(run.gates[0]).approve().output == "done"


@pytest.mark.parametrize("approvals", ["every_call", "low"])
def test_no_person_is_asked_about_the_plan(approvals: str) -> None:
    run = driven(WRITE, call("look"), approvals=approvals)
    assert run.gate.tool == "look"
    assert run.gate.preview["plan"]["item"] == "Book the room"


def test_sub_agents_have_plans_of_their_own() -> None:
    child, replies = planner(call("plan", write=["Mine"]), say("ready"), name="child")
    boss = spec_of("boss", plan=True, subagents=[child], model=None)
    models = {"child": replies, "boss": [WRITE, call("child", name="y"), noting(say("done"))]}
    assert drive(boss, {"name": "x"}, models=models).output == "done"
    assert seen == [(), ("Mine",), ("Book the room", "Pay it")]


@pytest.mark.parametrize(
    ("change", "kind", "why"),
    [
        ({"done": [2]}, ToolFailed, "the plan was not changed: done: there is no item 2"),
        ({}, ToolFailed, "give at least one of"),
        ({"write": ["\U0001f642" * 200] * 50}, ToolFailed, "its items are too long together"),
        ({"write": ["x" * 201]}, CallRefused, "arguments.write.0: String should have at most 200"),
        ({"add": ["x"] * 51}, CallRefused, "arguments.add: List should have at most 50 items"),
    ],
)
def test_the_model_reads_what_does_not_fit(change: dict[str, Any], kind: Any, why: str) -> None:
    run = driven(call("plan", **change), say("done"))
    (event,) = [one for one in run.events if isinstance(one, kind)]
    assert why in (event.error if isinstance(event, ToolFailed) else event.reason)
    assert run.output == "done"


def test_a_plan_is_a_new_version_and_its_name_is_taken() -> None:
    without, with_plan = spec_of("a", input=Input), spec_of("a", input=Input, plan=True)
    assert without.fingerprint != with_plan.fingerprint

    @tool()
    def plan() -> str:
        """Plans."""
        return ""

    with pytest.raises(DefinitionError, match="named plan"):
        spec_of("a", tools=[plan], plan=True)
    assert not spec_of("a", tools=[plan]).tools[0].plan
