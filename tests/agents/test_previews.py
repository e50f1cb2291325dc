"""A tool says what a gated call would do, and an approval counts only as long as it would do the same."""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.errors import DefinitionError
from agents.sdk import NotDone, Preview, PreviewChange, RetryPolicy, ToolContext, tool
from agents.sdk.spec import AgentSpec
from agents.testing import Flow, call, drive, say, together
from agents.testing.worker import BEGINNING
from runtime.core.run.events import CallPreviewed, CallRefused, GateOpened
from runtime.core.values.enums import CallPreview as EarlierPreview
from runtime.core.values.enums import CallState, Decision, Edit, Verdict
from runtime.core.values.json_values import hash_action, hash_value
from runtime.execution.admission import admit
from tests.support.specs import spec_of

world: dict[str, Any] = {}
moved: list[int] = []
NONE_LEFT = "the account has been closed"


def _preview(context: ToolContext, euros: int) -> Preview:
    made: Preview = world["preview"](euros)
    assert context.deadline in (2, 30)
    return made


async def _late(euros: int) -> None: ...


def _open() -> str | None:
    said: str | None = world["open"]()
    return said


@tool(
    approval=True,
    risk=lambda euros: world["risk"],
    effect="idempotent",
    preview=_preview,
    preview_ignores=["counts.readers", "summary"],
    precondition=_open,
    retry=RetryPolicy(attempts=3, base=0.5, ceiling=1),
)
def move(euros: int, note: str = "") -> int:
    """Moves money."""
    moved.append(euros)
    if world.get("fails"):
        world.update(balance=world["balance"] - euros, open=lambda: NONE_LEFT)
        world["fails"] = False
        raise NotDone("busy")
    return euros


def balance(euros: int) -> Preview:
    left = world["balance"]
    return Preview(
        summary=f"Move {euros}",
        changes=[PreviewChange(what="balance", before=left, after=left - euros)],
        counts={"accounts": 1, "readers": world["readers"]},
        warnings=["too little"] if left < euros else [],
    )


@pytest.fixture(autouse=True)
def usual() -> None:
    reset()


def reset() -> None:
    moved.clear()
    world.clear()
    world.update(balance=100, readers=3, risk="low", preview=balance, open=lambda: None)


def at_desk(*steps: Any) -> Flow:
    return drive(desk(), {"name": "A-1"}, model=[*steps, say("done")])


@cache
def desk() -> AgentSpec:
    return spec_of("desk", tools=[move])


MOVE = call("move", euros=40)
APPROVED = Decision(verdict=Verdict.APPROVE, by="bea")


def kinds(flow: Flow) -> list[str]:
    wanted = (CallPreviewed, GateOpened, CallRefused)
    return [event.type for event in flow.events if isinstance(event, wanted)]


def test_the_preview_is_shown_and_made_again_before_the_effect() -> None:
    flow = at_desk(MOVE)
    [gate] = flow.gates
    change = {"what": "balance", "before": 100, "after": 60}
    counts = {"accounts": 1, "readers": 3}
    assert gate.preview == {"shown": {"summary": "Move 40", "changes": [change], "counts": counts}}
    assert flow.approve().status == "completed"
    assert moved == [40]
    assert kinds(flow) == ["CallPreviewed", "GateOpened", "CallPreviewed"]
    assert "c1.0 previewed: " in str(flow)


def test_a_different_preview_asks_again_and_shows_both() -> None:
    flow = at_desk(MOVE)
    world["balance"] = 30
    flow.approve()
    [gate] = flow.gates
    assert moved == []
    assert gate.preview is not None
    assert gate.preview["before"]["changes"][0]["before"] == 100
    assert gate.preview["shown"]["changes"][0]["before"] == 30
    assert gate.preview["shown"]["warnings"] == ["too little"]
    assert flow.approve().status == "completed"
    assert moved == [40]


def test_parts_that_do_not_matter_may_differ() -> None:
    flow = at_desk(MOVE)
    world["readers"] = 4
    assert flow.approve().status == "completed"


@pytest.mark.parametrize(
    ("preview", "said"),
    [
        (lambda euros: {}[euros], "KeyError: 40"),
        (lambda euros: "much", "TypeError: the preview of move returned str, not a Preview"),
        (lambda euros: Preview(counts={"a": 2**60}), "preview"),
        (lambda euros: Preview(summary="x" * 20_000), "bytes of JSON, at most 16384 are shown"),
        (lambda euros: exit(2), "SystemExit: 2"),
    ],
)
def test_a_call_without_a_preview_can_be_decided(preview: Any, said: str) -> None:
    world["preview"] = preview
    flow = at_desk(MOVE)
    [gate] = flow.gates
    assert gate.preview is not None
    assert list(gate.preview) == ["missing"]
    assert said in gate.preview["missing"]
    assert flow.approve().status == "completed"


def test_an_approval_with_a_preview_does_not_count_without_one() -> None:
    flow = at_desk(MOVE)
    world["preview"] = lambda euros: {}[euros]
    flow.approve()
    [gate] = flow.gates
    assert gate.preview is not None
    assert set(gate.preview) == {"missing", "before"}
    assert moved == []
    flow.approve()
    assert moved == [40]


def test_a_precondition_is_checked_before_a_person_is_asked() -> None:
    world["open"] = lambda: NONE_LEFT
    flow = at_desk(MOVE)
    assert flow.status == "completed"
    [refused] = [event for event in flow.events if isinstance(event, CallRefused)]
    assert (refused.reason, moved) == (NONE_LEFT, [])


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (lambda: NONE_LEFT, "give was not called: the account has been closed"),
        (
            lambda: world["nothing"],
            "give was not called, because its precondition failed: KeyError: 'nothing'",
        ),
        (lambda: 7, "its precondition failed: TypeError"),
    ],
)
def test_a_precondition_holds_for_calls_that_nobody_approves(held: Any, said: str) -> None:
    @tool(precondition=held)
    def give() -> None:
        """Gives."""
        raise AssertionError("not called")

    flow = drive(spec_of("desk", tools=[give]), {"name": "A"}, model=[call("give"), say("done")])
    [made] = flow.calls
    assert said in getattr(made.outcome, "error", "")


def test_gates_of_a_turn_open_together_once_all_previews_are_there() -> None:
    @tool(approval=True)
    def write() -> str:
        """Writes."""
        return "sent"

    @tool(effect="read")
    def look() -> str:
        """Looks."""
        return "seen"

    spec = spec_of("desk", tools=[move, write, look])
    turn = together(call("write"), MOVE, call("look"), call("move", euros=10))
    flow = drive(spec, {"name": "A-1"}, model=[turn, say("done")])
    assert [gate.tool for gate in flow.gates] == ["write", "move", "move"]
    opened = [text.count("GateOpened") for text in flow.journal if "GateOpened" in text]
    assert opened == [3]
    flow.approve("write")
    for _ in range(2):
        flow._worker.decide(flow.gates[0].gate, APPROVED)
        flow._worker.go_on()
    assert (flow.status, sorted(moved)) == ("completed", [10, 40])


def test_a_preview_in_a_sub_agent_is_made_there() -> None:
    boss = spec_of("boss", subagents=[desk()])
    models = {"boss": [call("desk", name="A"), say("done")], "desk": [MOVE, say("done")]}
    flow = drive(boss, {"name": "A-1"}, models=models)
    [gate] = flow.gates
    assert gate.preview is not None
    assert flow.approve().status == "completed"


def test_a_repeated_attempt_is_previewed_again_unless_it_may_have_happened() -> None:
    world["fails"] = True
    flow = at_desk(MOVE).approve()
    assert (flow.status, moved, flow.gates) == ("completed", [40, 40], ())


@pytest.mark.parametrize(
    ("digest", "age", "counts"), [("d", 10, True), ("d", 11, False), ("e", 1, False)]
)
def test_a_preview_counts_for_its_action_and_for_ten_seconds(
    digest: str, age: int, counts: bool
) -> None:
    preview = EarlierPreview(at=BEGINNING, digest="d", material="m")
    at = BEGINNING + timedelta(seconds=age)
    assert admit.is_current(preview, digest, at) is counts
    assert not admit.is_current(None, digest, at)


def test_gates_of_a_turn_open_although_its_previews_take_long() -> None:
    flow = at_desk(MOVE, together(call("move", euros=1), call("move", euros=2)))

    def slow(euros: int) -> Preview:
        flow._worker.clock += timedelta(seconds=11)
        return balance(euros)

    world["preview"] = slow
    assert [gate.args for gate in flow.approve().gates] == [{"euros": 1}, {"euros": 2}]


def test_a_secret_argument_is_redacted() -> None:
    @tool(
        approval=True,
        secret_args=["pin"],
        preview=lambda pin: Preview(summary=f"with {pin}", counts={pin: 1}, targets=[pin]),
    )
    def unlock(pin: str) -> str:
        """Unlocks."""
        return "open"

    spec = spec_of("desk", tools=[unlock])
    flow = drive(spec, {"name": "A"}, model=[call("unlock", pin="77123"), say("done")])
    [gate] = flow.gates
    assert gate.preview == {
        "shown": {"summary": "with ••••", "counts": {"••••": 1}, "targets": ["••••"]}
    }
    assert "77123" not in "".join(flow.journal)
    assert flow.approve().status == "completed"


def test_a_settled_call_keeps_no_preview() -> None:
    flow = at_desk(MOVE)
    [waiting] = flow._worker.now.frame("0").calls
    assert (waiting.state, waiting.preview) == (CallState.GATED, None)
    assert waiting.shown is not None
    flow.deny("no")
    assert flow.status == "completed"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"preview": lambda amount: None}, "preview takes amount, which is not an argument"),
        ({"precondition": _late}, "precondition must be a function of its arguments"),
        ({"preview_ignores": ["counts"]}, "preview_ignores must be a list of parts"),
        ({"preview": _preview, "preview_ignores": ["colour"]}, "preview_ignores must be a list"),
    ],
)
def test_a_preview_takes_arguments_of_its_tool(more: Any, said: str) -> None:
    def spend(euros: int) -> int:
        """Spends."""
        return euros

    with pytest.raises(DefinitionError, match=said):
        tool(**more)(spend)


@cache
def other() -> AgentSpec:
    @tool(approval=True, effect="idempotent")
    def move(euros: int, note: str = "", to: str = "eve") -> int:
        """Moves money to another person."""
        moved.append(euros)
        return euros

    return spec_of("desk", tools=[move])


# A change of the world or of the code, and whether an approval from before it still counts.
MUTATIONS: dict[str, tuple[Callable[[Flow, int], Any], bool]] = {
    "nothing": (lambda flow, n: None, True),
    "a part that does not matter": (lambda flow, n: world.update(readers=n), True),
    "a lower risk": (lambda flow, n: world.update(risk="low"), True),
    "the preview": (lambda flow, n: world.update(balance=100 + n), False),
    "no preview": (lambda flow, n: world.update(preview=lambda euros: world[str(n)]), False),
    "a higher risk": (lambda flow, n: world.update(risk="high"), False),
    "an unknown risk": (lambda flow, n: world.update(risk=n), False),
    "the precondition": (lambda flow, n: world.update(open=lambda: NONE_LEFT), False),
    "the schema": (lambda flow, n: flow.deploy(other()), False),
}


@settings(max_examples=int(os.environ.get("PREVIEW_EXAMPLES", "100")), deadline=None)
@given(
    name=st.sampled_from(sorted(MUTATIONS)),
    number=st.integers(1, 1_000_000),
    approved=st.booleans(),
    risk=st.sampled_from(["low", "medium"]),
)
def test_what_changed_since_the_request_was_shown_is_not_executed(
    name: str, number: int, approved: bool, risk: str
) -> None:
    reset()
    world["risk"] = risk
    flow = at_desk(MOVE)
    mutate, counts = MUTATIONS[name]
    [gate] = flow.gates
    if not approved:
        mutate(flow, number)
    if approved or name != "the schema":
        flow._worker.decide(gate.gate, APPROVED)
    if approved:
        mutate(flow, number)
    flow._worker.go_on()
    assert moved == ([40] if counts else [])
    if not counts and name not in ("the precondition", "the schema"):
        flow.approve()
        assert moved == [40]


def test_an_edited_call_whose_preview_was_seen_is_made_at_once() -> None:
    assert at_desk(MOVE).edit({"euros": 30}).status == "completed"
    assert moved == [30]


def test_an_edited_call_whose_preview_nobody_saw_is_asked_about_again() -> None:
    flow = at_desk(MOVE)
    digest = hash_action(
        tool="move",
        schema=hash_value(flow.gate.schema),
        args={"euros": 30},
        path=flow.gate.path,
        effect=flow.gate.effect,
    )
    edit = Edit(args={"euros": 30}, digest=digest)
    flow._worker.decide(flow.gate.gate, Decision(verdict=Verdict.EDIT, by="bea", edit=edit))
    flow._worker.go_on()
    [gate] = flow.gates
    assert (gate.args["euros"], moved) == (30, [])
    assert gate.preview is not None
    assert gate.preview["shown"]["changes"][0]["after"] == 70
    assert gate.preview["before"]["changes"][0]["after"] == 60
    assert flow.approve().status == "completed"
    assert moved == [30]
