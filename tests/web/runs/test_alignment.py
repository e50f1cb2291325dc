"""Two runs aligned step by step: which steps are pairs, and the parts in which they differ."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from runtime.core.run.continuation import Call
from runtime.core.run.events import AgentChange
from runtime.core.values.enums import CallState
from runtime.ports import wiring
from runtime.reads import comparison
from runtime.reads.comparison import MAX_STEPS, Alignment, StepKind, align
from runtime.reads.trace.frames import FrameMessage, FrameRecord
from runtime.reads.trace.span import Usage
from runtime.reads.transcript import Transcript
from tests.core.run.events import frame_of, replied

NOW = datetime(2026, 1, 31, tzinfo=UTC)
TEN = Usage(input=10, output=2, cost=5)


def frame(*turns: Any, id: str = "0", agent: str = "clerk", version: str = "v1") -> FrameRecord:
    """Make a frame; each turn is (usage, calls), a call (tool, arguments, result), and answers say "Turn n"."""
    calls = tuple(
        Call(id=f"c{turn}.{n}", tool=tool, args=args, result=result, state=CallState.RETURNED)
        for turn, (_, calls) in enumerate(turns, 1)
        for n, (tool, args, result) in enumerate(calls)
    )
    made = FrameRecord(frame=frame_of(id, agent=agent, fingerprint=version, turn=len(turns)))
    made.open(NOW)
    for turn, (usage, _) in enumerate(turns, 1):
        made.call_model(NOW)
        until = tuple(call for call in calls if int(call.id[1:].split(".")[0]) <= turn)
        made.take(replace(made.frame, turn=turn, calls=until))
        tools = [call.tool for call in made.frame.list_turn_calls()]
        tokens = {"input_tokens": usage.input, "output_tokens": usage.output}
        reply = replied(*tools, model="model-a", cost=usage.cost, usage=tokens)
        made.add_reply(NOW, reply)
        made.messages.append(
            FrameMessage(
                order=turn, turn=turn, agent=agent, kind="text", by=agent, content="Yes", at=NOW
            )
        )
    made.call_model(NOW)
    return made


def run(*turns: Any, **given: Any) -> Transcript:
    return Transcript(roots=(frame(*turns, **given),), unreadable=())


def said(found: Alignment) -> list[tuple[str, str, dict[str, tuple[Any, Any]]]]:
    return [
        (pair.step.kind.value, pair.step.name, {p.name: (p.left, p.right) for p in pair.parts})
        for pair in found.pairs
    ]


LOOK, PAY = ("look", {"of": "A-1"}, 40), ("pay", {"euros": 40}, "paid")


def test_equal_runs_have_equal_steps_and_sums() -> None:
    found = align(*[run((TEN, [LOOK]), (replace(TEN, cost=None), [PAY])) for _ in range(2)])
    assert (found.pairs, found.equal) == ((), 5)
    left = found.left
    assert (left.replies, left.input, left.output, left.calls) == (2, 20, 4, 2)
    assert (left.cost, left.unpriced) == ("0.000005", 1)


def test_a_pair_differs_in_model_tokens_arguments_and_results() -> None:
    one = run((TEN, [LOOK]), (TEN, [PAY]))
    two = run((TEN, [LOOK]), (replace(TEN, output=7, cost=9), [("pay", {"euros": 4}, "late")]))
    assert said(align(one, two)) == [
        (
            "model call",
            "clerk",
            {"output tokens": (2, 7), "cost in US dollars": ("0.000005", "0.000009")},
        ),
        ("call", "pay", {"arguments": ({"euros": 40}, {"euros": 4}), "result": ("paid", "late")}),
    ]


def test_an_additional_step_moves_no_other() -> None:
    one, two = run((TEN, [LOOK, PAY])), run((TEN, [LOOK, ("ask", {}, "yes"), PAY]))
    left, right = align(one, two), align(two, one)
    assert [(p.step.name, p.left is None, p.right is None) for p in left.pairs[1:]] == [
        ("ask", True, False)
    ]
    assert [(p.step.name, p.left is None, p.right is None) for p in right.pairs[1:]] == [
        ("ask", False, True)
    ]
    assert left.equal == right.equal == 3  # the agent and two calls; the reply names its calls
    other = align(run((TEN, [LOOK])), run((TEN, [("ask", {}, 40)]))).pairs[1:]
    assert [(p.left is None, p.right is None) for p in other] == [(False, True), (True, False)]


def test_replies_from_before_a_fork_are_compared_in_neither_run() -> None:
    whole, fork = frame((TEN, [LOOK]), (TEN, [PAY])), frame((TEN, [PAY]))
    fork.frame, fork.by_id = replace(fork.frame, turn=2), whole.by_id
    fork.items[1] = whole.items[3]
    fork.messages[0] = replace(fork.messages[0], turn=2)
    found = align(
        Transcript(roots=(whole,), unreadable=()), Transcript(roots=(fork,), unreadable=())
    )
    assert (said(found), found.equal) == ([], 4)
    assert (found.left.replies, found.right.replies) == (2, 1)


def test_another_version_comes_with_its_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Catalogue:
        def list_changes(self, agent: str, before: str, after: str) -> tuple[AgentChange, ...]:
            assert (agent, before, after) == ("clerk", "v1", "v2")
            return (AgentChange(part="instructions", before="Pay.", after="Pay soon.", asks=True),)

    monkeypatch.setattr(wiring, "resolve_catalogue", Catalogue)
    (pair,) = align(run((TEN, [])), run((TEN, []), version="v2")).pairs
    assert (pair.step.kind, pair.parts) == (StepKind.AGENT, ())
    assert [line.text for line in pair.changes[0].lines if line.text] == ["Pay.", "Pay soon."]


def test_long_runs_are_compared_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MAX_STEPS", 3)
    assert MAX_STEPS == 1_000
    found = align(run((TEN, [LOOK] * 4)), run((TEN, [LOOK])))
    assert (found.left_out, found.left.calls) == (3, 4)
