"""Values from models and tools: the run journals any of them once, or names the fault, and ends."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.documents import codec
from runtime.core.run.events import Proposal, ToolReturned
from runtime.core.run.reducer import Entry
from runtime.core.values.enums import EffectClass, Verdict
from runtime.core.values.errors import NotJson
from runtime.core.values.limits import (
    JSON_DEPTH,
    MAX_ARGS,
    MAX_CALLS,
    MAX_ERROR,
    MAX_ITEMS,
    MAX_REPLY,
    MAX_RESULT,
)
from runtime.execution.effects.perform import validate_outcome
from runtime.models import Run
from runtime.ports.effects import (
    ModelAnswer,
    ModelFailure,
    Outcome,
    ToolFailure,
    ToolRequest,
    ToolResult,
    Unknown,
)
from tests.support.engine import MakeBench, types
from tests.support.fake_ports import FakeTool, ask, say, turns

DEPTH = 100_000


def deep(depth: int = DEPTH) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# Any value that Python can hold and a careless tool could return, most of it no JSON.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


def returning(value: Any, effect: EffectClass) -> FakeTool:
    return FakeTool(effect=effect, body=lambda _: ToolResult(value=value))


@pytest.mark.parametrize("effect", [EffectClass.READ, EffectClass.IDEMPOTENT, EffectClass.WRITE])
@pytest.mark.parametrize(
    ("value", "problem"),
    [({1}, "set is not a JSON type"), ("x" * MAX_RESULT, f"bytes of JSON, at most {MAX_RESULT}")],
    ids=["no JSON", "too large"],
)
def test_a_call_without_a_keepable_result_has_happened(
    rig: MakeBench, effect: EffectClass, value: Any, problem: str
) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=returning(value, effect))
    assert desk.advance(desk.start("a")).status == "completed"
    heard = desk.heard()
    assert len(desk.effects.calls) == 1
    assert problem in str(heard["content"])
    assert heard["outcome"] == ("failed" if effect is EffectClass.READ else "returned")
    assert effect is EffectClass.READ or heard["content"]["happened"] is True


def test_the_deepest_reply_arguments_and_result_are_journaled(rig: MakeBench) -> None:
    deepest = deep(JSON_DEPTH)
    calls = (Proposal(tool="t", args=deepest),)
    replies = ModelAnswer(reply=deepest, text="hi", calls=calls), say("done")
    tool = replace(returning(deepest, EffectClass.WRITE), gated=True)
    desk = rig({"a": turns(*replies)}, t=tool)
    run = desk.advance(desk.start("a"))
    assert desk.approvals.requests[0].args == deepest
    assert desk.answer(run.id).status == "completed"
    assert (desk.heard()["content"], len(desk.effects.calls)) == (deepest, 1)


REPLIES: dict[str, ModelAnswer] = {
    "reply: nul": ModelAnswer(reply="a\x00b", text=""),
    "reply: deep": ModelAnswer(reply=deep(), text=""),
    "text": ModelAnswer(reply={}, text="\x00"),
    "events[0].model": ModelAnswer(reply={}, text="hi", model="\ud800"),
    "calls[0].tool": ModelAnswer(reply={}, text="", calls=(Proposal(tool="\ud800", args={}),)),
    "args": ModelAnswer(reply={}, text="", calls=(Proposal(tool="t", args=deep()),)),
    "usage": ModelAnswer(reply={}, text="", usage={"input_tokens": 2**60}),
    f"at most {MAX_CALLS} are taken": ask(*[("t", {"n": n}) for n in range(MAX_CALLS + 1)]),
    f"at most {MAX_ITEMS} are taken": replace(
        ask(*[("t", {"n": n}) for n in range(MAX_ITEMS + 1)]), at_once=1
    ),
    f"at most {MAX_REPLY} are taken": say("x" * MAX_REPLY),
    "at most 200 characters": ask(("t" * 201, {})),
}


@pytest.mark.parametrize("answer", REPLIES.values(), ids=REPLIES)
def test_an_unstorable_reply_fails_the_run_and_says_where(
    rig: MakeBench, answer: ModelAnswer
) -> None:
    desk = rig({"a": lambda _: answer}, t=FakeTool())
    desk.effects.code.add("a")
    run = desk.advance(desk.start("a"))
    where = next(name for name, known in REPLIES.items() if known is answer).split(":")[0]
    # One that only the journal refuses is asked for again, for an entry of its own.
    asked = 2 if where.startswith("events") else 1
    assert (run.status, len(desk.effects.models)) == ("failed", asked)
    assert "cannot be kept" in (run.reason or "")
    assert where in (run.reason or "")


def test_arguments_that_a_script_changes_later_stay_in_the_run(rig: MakeBench) -> None:
    """Its worker keeps the state of the run until the decision."""
    names = ["ada"]
    desk = rig({"a": turns(ask(("t", {"names": names})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a")).id
    names.append("bea")
    desk.decide(desk.open_gates(run)[0].id, Verdict.APPROVE)
    assert desk.advance(run).status == "completed"
    assert [request.args for request in desk.effects.calls] == [{"names": ["ada"]}]


def test_the_model_is_told_that_its_arguments_are_too_large(rig: MakeBench) -> None:
    big = {"text": "x" * MAX_ARGS}
    desk = rig({"a": turns(ask(("t", big)), say("done"))}, t=FakeTool())
    assert desk.advance(desk.start("a")).status == "completed"
    heard = desk.heard()
    assert (heard["outcome"], desk.effects.calls) == ("refused", [])
    assert f"at most {MAX_ARGS} are taken" in heard["content"]


ERROR = "\x00\ud800" + "x" * 1_000_000


def test_errors_of_models_and_of_tools_are_escaped_and_cut(rig: MakeBench) -> None:
    def raises(request: ToolRequest) -> Outcome:
        raise ValueError(ERROR)

    desk = rig(
        {"a": turns(ModelFailure(error=ERROR)), "b": turns(ask(("t", {})), say("done"))},
        t=FakeTool(body=raises),
    )
    failed = desk.advance(desk.start("a"))
    assert (failed.status, len(failed.reason or "")) == ("failed", MAX_ERROR)
    doubtful = desk.start("b")
    assert desk.advance(doubtful).status == "suspended"
    assert desk.answer(doubtful, Verdict.GIVE_UP, "gone").status == "completed"
    assert Run.objects.filter(status="quarantined").count() == 0


@pytest.mark.parametrize("made", [ToolFailure, Unknown])
def test_errors_that_a_tool_reports_are_escaped_and_cut(made: type[ToolFailure | Unknown]) -> None:
    taken = validate_outcome(made(error=ERROR))
    assert isinstance(taken, made)
    assert (len(taken.error), taken.error.isprintable()) == (MAX_ERROR, True)


@given(value=ANYTHING)
def test_an_accepted_value_can_be_journaled_and_read_again(value: Any) -> None:
    try:
        taken = validate_outcome(ToolResult(value=value))
    except NotJson:
        return
    assert isinstance(taken, ToolResult)
    event = ToolReturned(frame="0", call="c1.0", attempt=1, result=taken.value)
    entry = Entry(at=datetime(2030, 1, 1, tzinfo=UTC), events=(event,))
    assert codec.decode_entry(codec.encode_entry(entry)) == entry


@pytest.mark.parametrize(
    ("effect", "last"),
    [
        (EffectClass.READ, "ToolFailed"),
        (EffectClass.WRITE, "ToolReturned"),
        (EffectClass.TRANSACTIONAL, "ToolFailed"),
    ],
)
def test_a_result_that_no_entry_takes_has_its_outcome(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, effect: EffectClass, last: str
) -> None:
    monkeypatch.setattr(
        "runtime.execution.effects.perform.validate_outcome", lambda outcome: outcome
    )
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=returning("\ud800", effect))
    run = desk.advance(desk.start("a"))
    assert run.status == "completed"
    assert types(run.id)[-3:] == [last, "ModelReplied", "Completed"]
