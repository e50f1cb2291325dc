"""Guarantees in places where other projects had a bug (docs/explanation/upstream-bugs.md)."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from agents.sdk import agent, tool
from agents.sdk.spec import AgentSpec
from agents.testing import Turn, call, drive, replies, say, together
from agents.testing.drive import DECIDER, Flow
from approvals import policy
from runtime.core.continuation import Continuation
from runtime.core.digest import action_digest
from runtime.core.documents.codec import encode_entry
from runtime.core.enums import Decision, EffectClass, GateKind, Risk, Verdict
from runtime.core.errors import NotJson
from runtime.core.events import RunStarted
from runtime.core.machine.replay import Entry
from tests.stored.scenarios import BOTH, INPUT, PAY, POST, Order, boss, desk

ACTION: dict[str, Any] = {
    "tool": "refund",
    "schema": "sha256:a",
    "args": {"euros": 40},
    "path": ("boss", "desk", "refund"),
    "effect": EffectClass.WRITE,
}
READ = call("price", **INPUT)


@tool()
def transfer(number: str) -> str:
    """Sends money, and hears nothing back."""
    raise TimeoutError("no answer was read")


def slow() -> AgentSpec:
    return agent(
        name="slow",
        description="Sends.",
        instructions="Send.",
        input=Order,
        model=replies(call("transfer", **INPUT), say("Sent.")),
        tools=[transfer],
    )


def test_only_the_shown_call_is_made() -> None:
    """The arguments change between the approval and the start: the changed call is not made."""
    flow = drive(desk(PAY), INPUT)
    worker = flow._worker
    worker.now = _with_args(worker.now, {"number": "A-1", "euros": 4000})
    flow.approve()
    assert [made.args["euros"] for made in flow.calls] in ([], [40])


def test_an_approval_is_for_the_tool_as_it_was_shown() -> None:
    assert action_digest(**ACTION) != action_digest(**{**ACTION, "schema": "sha256:b"})


def test_an_approval_is_for_the_agent_that_asked() -> None:
    assert action_digest(**ACTION) != action_digest(**{**ACTION, "path": ("desk", "refund")})


def test_a_decision_counts_once() -> None:
    """The same gate is answered again, in other words, while the run waits at another one."""
    flow = drive(desk(BOTH), INPUT)
    gate = next(shown.gate for shown in flow.gates if shown.tool == "refund")
    flow.approve("refund")
    flow._worker.decide(gate, Decision(verdict=Verdict.APPROVE, by=DECIDER, reason="once more"))
    flow._worker.go_on()
    assert _made(flow).count("refund") == 1


def test_a_write_whose_worker_died_is_not_repeated() -> None:
    flow = drive(desk(POST), INPUT, crash_after=["post"])
    assert _made(flow) == ["post"]
    assert [gate.kind for gate in flow.gates] == [GateKind.IN_DOUBT]


def test_a_write_that_times_out_is_not_repeated() -> None:
    """The tool raises a read timeout, so its outcome is unknown."""
    flow = drive(slow(), INPUT)
    assert _made(flow) == ["transfer"]
    assert [gate.kind for gate in flow.gates] == [GateKind.IN_DOUBT]


def test_a_read_whose_worker_died_is_made_again() -> None:
    flow = drive(desk(READ), INPUT, crash_before=["price"])
    assert (flow.status, _made(flow)) == ("completed", ["price"])


def test_an_approval_outlives_the_worker_that_took_it_up() -> None:
    """The worker dies between applying the decision and the call; no reviewer is asked again."""
    flow = drive(desk(call("close", **INPUT)), INPUT, crash_before=["close"]).approve()
    assert (flow.status, _made(flow)) == ("completed", ["close"])


def test_a_pause_is_no_result_for_the_parent() -> None:
    flow = drive(boss(), INPUT)
    assert flow.status == "suspended"
    assert flow.gate.path == ("boss", "desk", "refund")


def test_a_resumed_sub_agent_goes_on_where_it_was() -> None:
    """A worker takes the run up once before the decision, as after any wake-up, and once with it."""
    flow = drive(boss(), INPUT, models={"desk": [READ, PAY, _counted]})
    flow._worker.advance()
    flow._worker.go_on()
    assert _made(flow) == ["price"]
    flow.approve()
    assert (flow.status, _made(flow)) == ("completed", ["price", "refund"])


def test_a_resumed_turn_repeats_no_finished_call() -> None:
    flow = drive(desk(together(READ, PAY)), INPUT).approve()
    assert (flow.status, _made(flow)) == ("completed", ["price", "refund"])


def test_an_approval_is_honoured_after_a_wait() -> None:
    flow = drive(desk(PAY), INPUT).approve()
    assert (flow.status, _made(flow)) == ("completed", ["refund"])


def test_calls_of_one_id_are_two_calls() -> None:
    """The provider gives both calls of a reply the same id."""
    both = together(call("post", number="A-1"), call("post", number="A-2"))
    for part in both.parts:
        part.tool_call_id = "call_1"  # type: ignore[union-attr]
    flow = drive(desk(both), INPUT)
    assert [made.args["number"] for made in flow.calls] == ["A-1", "A-2"]
    assert len({made.key for made in flow.calls}) == 2


def test_half_a_surrogate_pair_is_refused() -> None:
    started = RunStarted(agent="desk", input={"number": "\ud800"}, requester="ada")
    try:
        encode_entry(Entry(at=datetime(2030, 1, 1, tzinfo=UTC), events=(started,)))
    except NotJson:
        return
    raise AssertionError("it was written")


def test_a_requester_does_not_decide_on_their_own_run() -> None:
    groups = [str(group) for group in policy.Group]
    for risk in Risk:
        assert policy.may_decide(requester="ada", person="ada", groups=groups, risk=risk)


def test_only_who_may_decide_a_risk_does() -> None:
    assert policy.may_decide(requester="ada", person="cyril", groups=[], risk=Risk.HIGH)


def _counted(turn: Turn) -> Any:
    return say(f"{len(turn.results)} results")


def _made(flow: Flow) -> list[str]:
    return [made.tool for made in flow.calls]


def _with_args(now: Continuation, args: Any) -> Continuation:
    frame = now.frame("0")
    changed = tuple(replace(one, args=args) for one in frame.calls)
    return now.with_frame(replace(frame, calls=changed))
