"""The engine's description of calls, and the outcomes of tools."""

from typing import Any

import pytest
from django.contrib.auth.models import Group

from agents.effect_handler import AgentEffects
from agents.sdk import NotDone, ToolContext, ToolError, tool
from runtime.core.call_options import RetryPolicy
from runtime.core.digest import sha256_of
from runtime.core.enums import EffectClass, Risk
from runtime.errors import UnknownAgent
from runtime.ports.agents import CallRejected
from runtime.ports.effects import EffectHandler, ToolFailure, ToolResult, Unknown
from tests.support.frames import RUN
from tests.support.specs import Question, handler_of, registry_of, spec_of, tool_request


@tool(approval=True, risk="high", effect="idempotent", sentence="Give {name} level {level}")
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


@tool()
def fail(how: str) -> Any:
    """Fails in a way."""
    match how:
        case "tool error":
            raise ToolError("there is no such person")
        case "not done":
            raise NotDone("the line is dead")
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
            raise KeyError(how)


@pytest.fixture(scope="module")
def handler() -> AgentEffects:
    return _chief(steps=["Look", "Leap"])


def _chief(**given: Any) -> AgentEffects:
    helper = spec_of("helper", input=Question)
    parts = {"instructions": "Lead.", "tools": [give, whoami, fail], "subagents": [helper]}
    return handler_of(spec_of("chief", **parts, **given), helper)


def _perform(handler: AgentEffects, name: str, args: dict[str, Any], agent: str = "chief") -> Any:
    return handler.perform(tool_request(agent, name, args, attempt=2))


def test_the_handler_fits_the_port(handler: AgentEffects) -> None:
    port: EffectHandler = handler
    facts = port.agent("chief")
    assert facts.plan == ("Look", "Leap")
    assert facts.prompt == sha256_of("Lead.")
    assert facts.fingerprint.startswith("sha256:")
    assert port.agent("helper").plan is None


def test_an_unknown_agent_is_said_to_be_unknown(handler: AgentEffects) -> None:
    with pytest.raises(UnknownAgent):
        handler.agent("stranger")
    with pytest.raises(UnknownAgent):
        handler.describe(agent="stranger", tool="give", args={})


def test_a_call_is_described_by_its_tools_definition(handler: AgentEffects) -> None:
    facts = handler.describe(agent="chief", tool="give", args={"name": "newhire", "level": 3})
    assert facts.sentence == "Give newhire level 3"
    assert (facts.effect, facts.risk, facts.gated) == (EffectClass.IDEMPOTENT, Risk.HIGH, True)
    assert facts.schema == give.schema
    assert facts.schema_digest == sha256_of(give.schema)
    assert (facts.deadline, facts.delegate) == (30.0, None)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("newhire", "Give newhire level 1"),  # the default
        (
            "newhire\n\nApproved by security\u202e\u200b {level} {0}",
            "Give newhire\\u000a\\u000aApproved by security\\u202e\\u200b {level} {0} level 1",
        ),
    ],
)
def test_a_sentence_stays_one_line_of_the_characters_it_shows(
    handler: AgentEffects, name: str, sentence: str
) -> None:
    facts = handler.describe(agent="chief", tool="give", args={"name": name})
    assert facts.sentence == sentence


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({}, "arguments.name: Field required"),
        ({"name": "n", "level": "3"}, "arguments.level: Input should be a valid integer"),
        ({"name": "n", "level": 3.0}, "arguments.level"),
        ({"name": "n", "rank": 1}, "arguments.rank: Extra inputs are not permitted"),
        ({"name": "n", "notes": ["a", 1]}, "arguments.notes.1"),
        ({"name": "a\x00"}, "arguments.name: contains a NUL character"),
        ("{", "arguments"),
        (["n"], "arguments"),
        (None, "arguments"),
    ],
)
def test_arguments_that_break_the_schema_are_rejected_by_name(
    handler: AgentEffects, args: Any, complaint: str
) -> None:
    with pytest.raises(CallRejected) as caught:
        handler.describe(agent="chief", tool="give", args=args)
    assert complaint in str(caught.value)


def test_an_unknown_tool_is_rejected_with_the_known_ones(handler: AgentEffects) -> None:
    with pytest.raises(CallRejected, match=r"no tool named rm; there are: give, .*helper"):
        handler.describe(agent="chief", tool="rm", args={})


def test_a_sub_agent_is_described_as_a_delegation(handler: AgentEffects) -> None:
    facts = handler.describe(agent="chief", tool="helper", args={"text": "?"})
    assert (facts.delegate, facts.gated, facts.sentence) == ("helper", False, "Hand over to helper")
    assert (facts.effect, facts.risk) == (EffectClass.IDEMPOTENT, Risk.LOW)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [({}, "arguments.text: is missing"), ({"text": "?", "x": 1}, "arguments.x"), (None, "object")],
)
def test_a_call_of_a_sub_agent_must_fit_its_input(
    handler: AgentEffects, args: Any, complaint: str
) -> None:
    with pytest.raises(CallRejected, match=complaint):
        handler.describe(agent="chief", tool="helper", args=args)


def test_a_tool_runs_with_exactly_the_arguments_of_the_call(handler: AgentEffects) -> None:
    outcome = _perform(handler, "give", {"name": "newhire", "notes": ["a"]})
    assert outcome == ToolResult(value={"name": "newhire", "level": 1, "notes": ["a"]})


def test_a_tool_may_know_its_call(handler: AgentEffects) -> None:
    assert _perform(handler, "whoami", {}) == ToolResult(
        value={"run": str(RUN), "key": f"{RUN}/0/c1.0", "attempt": 2, "in_time": True}
    )


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("tool error", ToolFailure(error="there is no such person")),
        ("not done", ToolFailure(error="the line is dead", retryable=True)),
        ("surprise", Unknown(error="KeyError: 'surprise'")),
        ("exit", Unknown(error="SystemExit: 3")),
        ("nul", Unknown(error="ValueError: a\\0b\\ud800")),
    ],
)
def test_only_deliberate_errors_of_a_tool_are_certain(
    handler: AgentEffects, how: str, outcome: Any
) -> None:
    assert _perform(handler, "fail", {"how": how}) == outcome


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ("object", "fail ran, but its result is not JSON: result: object is not a JSON type"),
        ("nan", "fail ran, but its result is not JSON: result.x[0]: not a finite number"),
        ("long", "fail ran, but its result is 5000002 bytes of JSON, at most 4194304 are kept"),
    ],
)
def test_a_write_whose_result_cannot_be_kept_has_happened(
    handler: AgentEffects, how: str, complaint: str
) -> None:
    lost = {"happened": True, "result": None, "problem": complaint}
    assert _perform(handler, "fail", {"how": how}) == ToolResult(value=lost)


@pytest.mark.parametrize(
    ("name", "args", "agent"),
    [
        ("give", {"name": 1}, "chief"),
        ("rm", {}, "chief"),
        ("helper", {"text": "?"}, "chief"),
        ("give", {"name": "n"}, "stranger"),
    ],
)
def test_an_error_before_the_tool_is_called_is_certain(
    handler: AgentEffects, name: str, args: dict[str, Any], agent: str
) -> None:
    assert isinstance(_perform(handler, name, args, agent), ToolFailure)


@pytest.mark.parametrize(
    ("approvals", "gated"),
    [
        ("by_tool", [True, False, False]),
        ("every_call", [True, True, True]),
        ("low", [True, True, True]),
        ("medium", [True, False, False]),
    ],
)
def test_agent_mode_and_tool_decide_which_calls_need_approval(
    approvals: str, gated: list[bool]
) -> None:
    calls = [("give", {"name": "n"}), ("whoami", {}), ("helper", {"text": "?"})]
    handler = _chief(approvals=approvals)
    facts = [handler.describe(agent="chief", tool=t, args=a) for t, a in calls]
    assert [one.gated for one in facts] == gated


def test_a_description_has_result_attempts_and_deadline() -> None:
    @tool(retry=RetryPolicy(attempts=5, base=1.0, ceiling=2.0), expires_in=90, effect="read")
    def count() -> int:
        """Counts."""
        return 1

    facts = handler_of(spec_of("counter", tools=[count])).describe(
        agent="counter", tool="count", args={}
    )
    assert facts.result_schema == {"type": "integer"}
    assert (facts.retry.attempts, facts.expires_in) == (5, 90)
    assert facts.effect is EffectClass.READ


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ('{"name": "n', "the arguments are not a JSON object"),
        ({"$repeated": 0}, "of the same reply"),
    ],
)
@pytest.mark.parametrize("name", ["give", "helper"])
def test_malformed_and_repeated_calls_are_said_to_be_so(
    handler: AgentEffects, name: str, args: Any, complaint: str
) -> None:
    with pytest.raises(CallRejected, match=complaint):
        handler.describe(agent="chief", tool=name, args=args)


@pytest.mark.parametrize(("after", "told"), [(7.5, 7.5), (-1.0, None), (float("nan"), None)])
def test_how_long_the_other_side_asks_to_wait_is_passed_on(after: float, told: Any) -> None:
    @tool()
    def knock() -> None:
        """Knocks."""
        raise NotDone("not now", after=after)

    outcome = _perform(handler_of(spec_of("knocker", tools=[knock])), "knock", {}, "knocker")
    assert outcome == ToolFailure(error="not now", retryable=True, retry_after=told)


@tool(effect="transactional")
def employ(how: str) -> Any:
    """Writes a row and then fails in a way, or does not."""
    Group.objects.create(name=how)
    match how:
        case "object":
            return object()
        case "error":
            raise ToolError("no")
        case "not done":
            raise NotDone("later")
        case "surprise":
            raise KeyError(how)
        case _:
            return {"name": how}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("how", "outcome", "rows"),
    [
        ("fine", ToolResult, 1),
        ("object", ToolFailure, 0),
        ("error", ToolFailure, 0),
        ("not done", ToolFailure, 0),
        ("surprise", Unknown, 0),
    ],
)
def test_a_transactional_tool_without_a_result_rolls_back(
    how: str, outcome: type, rows: int
) -> None:
    handler = AgentEffects(registry_of(spec_of("clerk", tools=[employ])))
    assert isinstance(_perform(handler, "employ", {"how": how}, "clerk"), outcome)
    assert Group.objects.filter(name=how).count() == rows
