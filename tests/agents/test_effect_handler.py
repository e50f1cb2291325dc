"""The engine's description of calls, and the outcomes of tools."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group
from pydantic import BaseModel, field_validator

from agents.credentials import Environment
from agents.effect_handler import AgentEffects
from agents.sdk import (
    Compaction,
    CredentialRefused,
    Holds,
    NotDone,
    Preview,
    ToolContext,
    ToolError,
    tool,
)
from agents.sdk.conditions import CodeEnded
from runtime.core.values.call_options import RetryPolicy
from runtime.core.values.enums import EffectClass, Risk
from runtime.core.values.json_values import hash_value
from runtime.errors import InvalidInput, UnknownAgent
from runtime.ports.agents import CallRejected, TurnBoundary
from runtime.ports.effects import (
    EffectHandler,
    ModelRequest,
    PreviewRequest,
    ToolFailure,
    ToolResult,
    Unknown,
)
from tests.support.specs import RUN, Question, handler_of, spec_of, tool_request

PATIENT = RetryPolicy(attempts=5, base=1.0, ceiling=2.0)
NOT_JSON = "fail ran, but its result is not JSON: result"


@tool(
    approval=True,
    risk="high",
    effect="idempotent",
    sentence="Give {name} level {level}",
    retry=PATIENT,
    expires_in=90,
)
def give(name: str, level: int = 1, notes: list[str] | None = None) -> dict[str, Any]:
    """Gives."""
    return {"name": name, "level": level, "notes": notes}


@tool()
def whoami(context: ToolContext) -> dict[str, Any]:
    """Returns the facts of its call."""
    return {
        "run": str(context.run),
        "key": context.key,
        "attempt": context.attempt,
        "in_time": 0 < context.remaining() <= context.deadline,
    }


def _end(how: str) -> Any:
    """End in a way."""
    match how:
        case "tool error":
            raise ToolError("there is no such person")
        case "not done":
            raise NotDone("the line is dead", after=7.5)
        case "never":
            raise NotDone("the line is dead", after=-1.0)
        case "header":
            raise NotDone("the line is dead", after="7")  # type: ignore[arg-type]
        case "unreadable":
            raise type("Odd", (ToolError,), {"__str__": lambda _: None})
        case "exit":
            raise SystemExit(3)
        case "nul":
            raise ValueError("a\x00b\ud800")
        case "object":
            return object()
        case "nan":
            return {"x": [float("nan")]}
        case "long":
            return "x" * 5_000_000
        case _:
            return how


@tool()
def fail(how: str) -> Any:
    """Fails in a way."""
    return _end(how)


@tool(effect="transactional")
def employ(how: str) -> Any:
    """Writes a row and then fails in a way, or does not."""
    Group.objects.create(name=how)
    return _end(how)


def _chief(**given: Any) -> AgentEffects:
    helper = spec_of("helper", input=Question)
    tools = [give, whoami, fail, employ]
    chief = spec_of("chief", instructions="Lead.", tools=tools, subagents=[helper], **given)
    return handler_of(chief, helper)


HANDLER: EffectHandler = _chief(steps=["Look", "Leap"])


def _perform(name: str, args: Any, agent: str = "chief") -> Any:
    return HANDLER.perform(tool_request(agent, name, args, attempt=2))


def test_an_agent_is_described_by_its_definition() -> None:
    facts = HANDLER.agent("chief")
    assert (facts.plan, facts.prompt) == (("Look", "Leap"), hash_value("Lead."))
    with pytest.raises(UnknownAgent):
        HANDLER.agent("stranger")
    with pytest.raises(UnknownAgent):
        HANDLER.describe(agent="stranger", tool="give", args={})


def test_a_call_is_described_by_its_tools_definition() -> None:
    facts = HANDLER.describe(agent="chief", tool="give", args={"name": "newhire", "level": 3})
    assert facts.sentence == "Give newhire level 3"
    assert (facts.effect, facts.risk, facts.gated) == (EffectClass.IDEMPOTENT, Risk.HIGH, True)
    assert (facts.schema, facts.schema_digest) == (give.schema, hash_value(give.schema))
    assert (facts.deadline, facts.delegate, facts.retry) == (30.0, None, PATIENT)
    assert (facts.result_schema, facts.expires_in) == (give.result_schema, 90)
    helped = HANDLER.describe(agent="chief", tool="helper", args={"text": "?"})
    assert (helped.delegate, helped.gated) == ("helper", False)
    assert helped.sentence == "Hand over to helper"
    assert (helped.effect, helped.risk) == (EffectClass.IDEMPOTENT, Risk.LOW)
    strict = _chief(approvals="every_call")
    assert strict.describe(agent="chief", tool="whoami", args={}).gated
    assert strict.describe(agent="chief", tool="helper", args={"text": "?"}).gated


def test_a_sentence_shows_the_beginning_of_a_long_argument() -> None:
    name = "x" * 50_000
    facts = HANDLER.describe(agent="chief", tool="give", args={"name": name})
    assert facts.sentence == f"Give {name[:200]}… level 1"


def test_a_sentence_stays_one_line_of_the_characters_it_shows() -> None:
    name = "newhire\n\nApproved by security\u202e\u200b {level} {0}"
    facts = HANDLER.describe(agent="chief", tool="give", args={"name": name})
    shown = "newhire⟦U+000A⟧⟦U+000A⟧Approved by security⟦U+202E⟧⟦U+200B⟧ {level} {0}"
    assert facts.sentence == f"Give {shown} level 1"


@pytest.mark.parametrize(
    ("name", "args", "complaint"),
    [
        ("give", {}, "arguments.name: Field required"),
        ("give", {"name": "n", "level": "3"}, "arguments.level: Input should be a valid integer"),
        ("give", {"name": "n", "level": 3.0}, "arguments.level"),
        ("give", {"name": "n", "rank": 1}, "arguments.rank: Extra inputs are not permitted"),
        ("give", {"name": "n", "notes": ["a", 1]}, "arguments.notes.1"),
        ("give", {"name": "a\x00"}, "arguments.name: contains a NUL character"),
        ("give", ["n"], "arguments"),
        ("give", '{"name": "n', "the arguments are not a JSON object"),
        ("give", {"$repeated": 0}, "of the same reply"),
        ("helper", {}, "arguments.text: is missing"),
        ("helper", {"text": "?", "x": 1}, "arguments.x"),
        ("helper", None, "object"),
        ("helper", '{"name": "n', "the arguments are not a JSON object"),
        ("helper", {"$repeated": 0}, "of the same reply"),
        ("rm", {}, "no tool named rm; there are: give, whoami, fail, employ, helper"),
    ],
)
def test_a_call_that_cannot_be_made_is_rejected(name: str, args: Any, complaint: str) -> None:
    with pytest.raises(CallRejected) as caught:
        HANDLER.describe(agent="chief", tool=name, args=args)
    assert complaint in str(caught.value)


def test_a_tool_runs_with_exactly_the_arguments_of_the_call() -> None:
    outcome = _perform("give", {"name": "newhire", "notes": ["a"]})
    assert outcome == ToolResult(value={"name": "newhire", "level": 1, "notes": ["a"]})
    assert _perform("whoami", {}) == ToolResult(
        value={"run": str(RUN), "key": f"{RUN}/0/c1.0", "attempt": 2, "in_time": True}
    )


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("tool error", ToolFailure(error="there is no such person")),
        ("not done", ToolFailure(error="the line is dead", retryable=True, retry_after=7.5)),
        ("never", ToolFailure(error="the line is dead", retryable=True)),
        ("header", ToolFailure(error="the line is dead", retryable=True)),
        ("unreadable", ToolFailure(error="its message cannot be read")),
        ("exit", Unknown(error="SystemExit: 3")),
        ("nul", Unknown(error="ValueError: a\\0b\\ud800")),
        ("object", f"{NOT_JSON}: object is not a JSON type"),
        ("nan", f"{NOT_JSON}.x[0]: not a finite number"),
        ("long", "fail ran, but its result is 5000002 bytes of JSON, at most 4194304 are kept"),
    ],
)
def test_only_deliberate_errors_of_a_tool_are_certain(how: str, outcome: Any) -> None:
    if isinstance(outcome, str):
        outcome = ToolResult(value={"happened": True, "result": None, "problem": outcome})
    assert _perform("fail", {"how": how}) == outcome


def test_an_error_before_the_tool_is_called_is_certain() -> None:
    for name, args in (("give", {"name": 1}), ("rm", {}), ("helper", {"text": "?"})):
        assert isinstance(_perform(name, args), ToolFailure)
    assert isinstance(_perform("give", {"name": "n"}, "stranger"), ToolFailure)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("how", "outcome", "rows"),
    [
        ("fine", ToolResult, 1),
        ("object", ToolFailure, 0),
        ("tool error", ToolFailure, 0),
        ("not done", ToolFailure, 0),
        ("exit", Unknown, 0),
    ],
)
def test_a_transaction_without_a_result_rolls_back(how: str, outcome: type, rows: int) -> None:
    assert isinstance(_perform("employ", {"how": how}), outcome)
    assert Group.objects.filter(name=how).count() == rows


def _change(notes: list[str]) -> bool:
    """A condition that changes its argument, although it may not."""
    notes.append("judged")
    return len(notes) > 1


def _judge(notes: list[str]) -> str:
    return "high" if _change(notes) else "low"


def _check(notes: list[str]) -> str | None:
    return "there are too many" if _change(notes) else None


REFUSED: list[str] = []


@tool(
    approval=_change,
    risk=_judge,
    precondition=_check,
    credentials=[Environment("crm", "CRM_TOKEN")],
)
def write(context: ToolContext, notes: list[str] = [], more: dict[str, Any] = {}) -> Any:  # noqa: B006
    """Changes its arguments, and is refused with its credential at first."""
    notes.append("written")
    more["written"] = True
    if not REFUSED:
        REFUSED.append(context.credentials["crm"])
        raise CredentialRefused("401")
    return [notes, more]


def test_code_that_changes_its_arguments_changes_no_other_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also not those of its next attempt, and not the defaults, which are part of what a person approves."""
    monkeypatch.setenv("CRM_TOKEN", "token")
    handler = handler_of(spec_of("clerk", tools=[write]))
    described = handler.describe(agent="clerk", tool="write", args={})
    for _ in range(2):
        REFUSED.clear()
        outcome = handler.perform(tool_request("clerk", "write", {}))
        assert outcome == ToolResult(value=[["written"], {"written": True}])
        assert handler.describe(agent="clerk", tool="write", args={}) == described
    assert (described.risk, described.gated) == (Risk.LOW, False)


class Panic(BaseException):
    """As of a library in another language, or a cancelled task."""


def _panic(*_: Any, **__: Any) -> Any:
    raise Panic("gone")


class Strict(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def check(cls, name: str) -> str:
        return str(_panic()) if name == "panic" else name


def _instruct(task: Strict) -> str:
    return str(_panic(task))


def _permit(how: str) -> str | None:
    return str(_panic()) if how == "early" else None


def _show(how: str) -> Preview:
    return Preview(counts={"how": _panic(how)})


@tool(precondition=_permit, preview=_show, approval=True)
def leap(how: str) -> Any:
    """Leaps."""
    raise asyncio.CancelledError(how)


@tool()
async def swim(how: str) -> Any:
    """Swims."""
    raise asyncio.CancelledError(how)


HASTY = spec_of(
    "hasty",
    input=Strict,
    instructions=_instruct,
    model=_panic,
    tools=[leap, swim],
    holds=Holds(when=_panic),
    compaction=Compaction(messages=8, summarise=_panic),
)


def test_code_that_would_end_the_thread_of_its_run_fails_like_other_code() -> None:
    """No worker would get the run again: its lease is that of a process which lives on."""
    handler, outcomes = handler_of(HASTY), list[Any]()
    request = ModelRequest(
        run=RUN,
        frame="0",
        agent="hasty",
        messages=({"role": "input", "content": {}},),
        deadline=5.0,
    )
    late, early = [tool_request("hasty", "leap", {"how": how}) for how in ("late", "early")]

    def check() -> None:
        for call in (late, replace(late, tool="swim")):
            assert handler.perform(call) == Unknown(error="CancelledError: late")
        refused = "leap was not called, because its precondition failed: Panic: gone"
        assert handler.perform(early) == ToolFailure(error=refused)
        shown = handler.preview(PreviewRequest(of=late, digest="d", deadline=1.0))
        assert shown.missing == "Panic: gone"
        with pytest.raises(InvalidInput, match="Panic: gone"):
            handler.instruct("hasty", {"name": "x"}, at=datetime.now(UTC))
        with pytest.raises(InvalidInput, match="Panic: gone"):
            handler.receive("hasty", {"name": "panic"})
        boundary = TurnBoundary(agent="hasty", turn=1, seconds=0.0, messages=())
        with pytest.raises(CodeEnded, match="Panic: gone"):
            handler.hold_reason(boundary)
        for summary in (False, True):
            handler.start_model_call(replace(request, summary=summary), outcomes.append)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(check).result()
    assert [outcome.error for outcome in outcomes] == ["Panic: gone"] * 2
    with pytest.raises(asyncio.CancelledError):  # as a test that is interrupted
        handler.perform(late)
