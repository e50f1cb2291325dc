"""Values from models and tools: the run journals any of them, or names the fault, and ends."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.documents import codec
from runtime.core.enums import EffectClass, Verdict
from runtime.core.errors import NotJson
from runtime.core.events import Proposal, ToolFailed, ToolReturned
from runtime.core.limits import MAX_ARGS, MAX_CALLS, MAX_ERROR, MAX_REPLY, MAX_RESULT, plain
from runtime.core.machine.replay import Entry
from runtime.execution.effects.validation import validate_outcome
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
from tests.support.engine import MakeBench
from tests.support.fake_ports import FakeTool, ask, say, turns

DEPTH = 100_000


def deep(depth: int = DEPTH) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    "nul": "a\x00b",
    "surrogate": "\ud800",
    "nul in a key": {"\x00": 1},
    "nan": float("nan"),
    "infinity": [float("-inf")],
    "big": 2**53,
    "deep": deep(),
    "bytes": b"x",
    "number as a key": {1: 2},
}
# Any value that Python can hold and a careless tool could return, most of it no JSON.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_result_that_is_not_json_is_a_failed_call(rig: MakeBench, value: Any) -> None:
    tool = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value=value))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "completed"
    assert desk.heard()["outcome"] == "failed"
    assert "cannot be kept: result" in desk.heard()["content"]


def test_a_result_beyond_the_limit_is_a_failed_call(rig: MakeBench) -> None:
    tool = FakeTool(
        effect=EffectClass.READ, body=lambda request: ToolResult(value="x" * MAX_RESULT)
    )
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "completed"
    heard = desk.heard()
    assert f"result: is {MAX_RESULT + 2} bytes of JSON, at most {MAX_RESULT}" in heard["content"]


REPLIES: dict[str, ModelAnswer] = {
    **{f"reply: {name}": ModelAnswer(reply=value, text="") for name, value in HOSTILE.items()},
    "text": ModelAnswer(reply={}, text="\x00"),
    "calls[0].tool": ModelAnswer(reply={}, text="", calls=(Proposal(tool="\ud800", args={}),)),
    "args": ModelAnswer(reply={}, text="", calls=(Proposal(tool="t", args=deep()),)),
    "usage": ModelAnswer(reply={}, text="", usage={"input_tokens": 2**60}),
    f"at most {MAX_CALLS} are taken": ask(*[("t", {"n": n}) for n in range(MAX_CALLS + 1)]),
    f"at most {MAX_REPLY} are taken": say("x" * MAX_REPLY),
    "at most 200 characters": ask(("t" * 201, {})),
}


@pytest.mark.parametrize("answer", REPLIES.values(), ids=REPLIES)
def test_an_unstorable_reply_fails_the_run_naming_its_place(
    rig: MakeBench, answer: ModelAnswer
) -> None:
    desk = rig({"a": turns(answer)}, t=FakeTool())
    run = desk.advance(desk.start("a"))
    assert run.status == "failed"
    where = next(name for name, known in REPLIES.items() if known is answer).split(":")[0]
    assert "cannot be kept" in (run.reason or "")
    assert where in (run.reason or "")


def test_the_model_is_told_that_its_arguments_are_too_large(rig: MakeBench) -> None:
    big = {"text": "x" * MAX_ARGS}
    desk = rig({"a": turns(ask(("t", big)), say("done"))}, t=FakeTool())
    assert desk.advance(desk.start("a")).status == "completed"
    heard = desk.heard()
    assert (heard["outcome"], desk.effects.calls) == ("refused", [])
    assert f"at most {MAX_ARGS} are taken" in heard["content"]


ERROR = "\x00\ud800" + "x" * 1_000_000


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(ToolFailure(error=ERROR), "completed"), (Unknown(error=ERROR), "suspended")],
)
def test_an_error_is_escaped_and_cut_before_it_is_journaled(
    rig: MakeBench, outcome: Outcome, status: str
) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(body=lambda _: outcome))
    assert desk.advance(desk.start("a")).status == status


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


@given(value=ANYTHING)
def test_an_accepted_value_can_be_journaled_and_read_again(value: Any) -> None:
    try:
        taken = validate_outcome(ToolResult(value=value))
    except NotJson:
        return
    assert isinstance(taken, ToolResult)
    _through(ToolReturned(frame="0", call="c1.0", attempt=1, result=taken.value))


@given(text=st.text() | st.text(alphabet="\x00\ud800a", max_size=5000))
def test_any_error_can_be_journaled(text: str) -> None:
    said = plain(text)
    assert len(said) <= MAX_ERROR
    _through(ToolFailed(frame="0", call="c1.0", attempt=1, error=said))


def _through(event: ToolFailed | ToolReturned) -> None:
    entry = Entry(at=datetime(2030, 1, 1, tzinfo=UTC), events=(event,))
    assert codec.decode_entry(codec.encode_entry(entry)) == entry
