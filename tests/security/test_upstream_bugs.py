"""Guarantees in places where other projects had a bug (`bugs` of tests/docs/guarantees.toml)."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agents.sdk import tool
from agents.testing import call, drive, say, together
from agents.testing.drive import DECIDER, Flow
from runtime.core.documents.codec import encode_entry
from runtime.core.run.events import RunStarted
from runtime.core.run.reducer import Entry
from runtime.core.values.enums import Decision, EffectClass, GateKind, Verdict
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import hash_action
from tests.stored.scenarios import BOTH, INPUT, PAY, POST, boss, desk

ACTION: dict[str, Any] = {
    "tool": "refund",
    "schema": "sha256:a",
    "args": {"euros": 40},
    "path": ("boss", "desk", "refund"),
    "effect": EffectClass.WRITE,
}
READ = call("price", **INPUT)


def test_only_the_shown_call_is_made() -> None:
    flow = drive(desk(PAY), INPUT)
    worker = flow._worker
    frame = worker.now.frame("0")
    args = {"number": "A-1", "euros": 4000}
    calls = tuple(replace(one, args=args) for one in frame.calls)
    worker.now = worker.now.with_frame(replace(frame, calls=calls))
    flow.approve()
    assert [made.args["euros"] for made in flow.calls] in ([], [40])


def test_an_approval_is_for_the_tool_as_it_was_shown() -> None:
    assert hash_action(**ACTION) != hash_action(**{**ACTION, "schema": "sha256:b"})
    assert hash_action(**ACTION) != hash_action(**{**ACTION, "path": ("desk", "refund")})


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

    @tool()
    def transfer(number: str) -> str:
        """Sends money, and hears nothing back."""
        raise TimeoutError

    flow = drive(desk(call("transfer", **INPUT), more=[transfer]), INPUT)
    assert _made(flow) == ["transfer"]
    assert [gate.kind for gate in flow.gates] == [GateKind.IN_DOUBT]


def test_a_read_whose_worker_died_is_made_again() -> None:
    flow = drive(desk(READ), INPUT, crash_before=["price"])
    assert (flow.status, _made(flow)) == ("completed", ["price"])


def test_an_approval_outlives_the_worker_that_took_it_up() -> None:
    """The worker dies between applying the decision and the call; no reviewer is asked again."""
    flow = drive(desk(call("close", **INPUT)), INPUT, crash_before=["close"]).approve()
    assert (flow.status, _made(flow)) == ("completed", ["close"])


def test_a_resumed_sub_agent_goes_on_where_it_was() -> None:
    """A worker takes the run up once before the decision, as after any wake-up, and once with it."""
    flow = drive(
        boss(),
        INPUT,
        models={"desk": [READ, PAY, lambda turn: say(f"{len(turn.results)} results")]},
    )
    assert (flow.status, flow.gate.path) == ("suspended", ("boss", "desk", "refund"))
    flow._worker.advance()
    flow._worker.go_on()
    assert _made(flow) == ["price"]
    flow.approve()
    assert (flow.status, _made(flow)) == ("completed", ["price", "refund"])


def test_a_resumed_turn_repeats_no_finished_call() -> None:
    flow = drive(desk(together(READ, PAY)), INPUT).approve()
    assert (flow.status, _made(flow)) == ("completed", ["price", "refund"])


def test_calls_of_one_id_are_two_calls() -> None:
    both = together(call("post", number="A-1"), call("post", number="A-2"))
    for part in both.parts:
        part.tool_call_id = "call_1"  # type: ignore[union-attr]
    flow = drive(desk(both), INPUT)
    assert [made.args["number"] for made in flow.calls] == ["A-1", "A-2"]
    assert len({made.key for made in flow.calls}) == 2


def test_half_a_surrogate_pair_is_refused() -> None:
    started = RunStarted(agent="desk", input={"number": "\ud800"}, requester="ada")
    with pytest.raises(NotJson):
        encode_entry(Entry(at=datetime(2030, 1, 1, tzinfo=UTC), events=(started,)))


def _made(flow: Flow) -> list[str]:
    return [made.tool for made in flow.calls]
