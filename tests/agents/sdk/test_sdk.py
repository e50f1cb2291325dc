"""Definitions that authors may write, and the errors for invalid ones."""

import importlib
import sys
from collections.abc import Callable  # noqa: F401
from dataclasses import replace
from typing import Any, Literal

import pytest
from typing_extensions import TypedDict

from agents.errors import DefinitionError
from agents.sdk import FailureCause, NotDone, ToolContext, tool
from agents.sdk.scripts import Turn, say, script
from runtime.core.call_options import TOOL_RETRIES, RetryPolicy
from runtime.core.enums import EffectClass, Risk
from tests.support.specs import spec_of


class Greeting(TypedDict):
    text: str


@tool(effect="idempotent", approval=True, risk="high", sentence="Greet {name} {times} times")
def greet(
    context: ToolContext, name: str, times: int = 1, tone: Literal["warm", "dry"] = "warm"
) -> Greeting:
    """Greets a person."""
    return {"text": f"{name} {times} {tone} {context.key}"}


def test_a_tool_is_described_by_its_signature() -> None:
    assert greet.name == "greet"
    assert greet.description == "Greets a person."
    assert (greet.effect, greet.risk, greet.approval) == (EffectClass.IDEMPOTENT, Risk.HIGH, True)
    assert greet.deadline == 30.0
    assert greet.defaults == {"times": 1, "tone": "warm"}


def test_the_schema_omits_the_context_and_forbids_extra_fields() -> None:
    assert list(greet.schema["properties"]) == ["name", "times", "tone"]
    assert greet.schema["required"] == ["name"]
    assert greet.schema["properties"]["times"]["default"] == 1
    assert greet.schema["additionalProperties"] is False


def test_the_default_effect_is_a_write_without_approval() -> None:
    @tool()
    def act(schema: str, copy: int) -> None:
        """Acts, with argument names that a model class would stumble over."""

    @tool()
    def rest() -> None:
        """Rests."""

    assert (act.effect, act.risk, act.approval) == (EffectClass.WRITE, Risk.LOW, False)
    assert act.sentence == "Call act with schema {schema}, copy {copy}"
    assert rest.sentence == "Call rest"


class NotJsonAtAll:
    pass


@pytest.mark.parametrize(
    ("signature", "complaint"),
    [
        ("(x: NotJsonAtAll)", "argument x has no JSON form"),
        ("(x: Callable[[], int])", "argument x has no JSON form"),
        ("(x)", "argument x has no type"),
        ("(*x: int)", "argument x cannot be given by name"),
        ("(**x: int)", "argument x cannot be given by name"),
        ("(x: int, context: ToolContext)", "the context must be the first parameter"),
        ("(x: float = float('inf'))", "the default of x: not a finite number"),
        ("() -> NotJsonAtAll", "its result has no JSON form"),
        ("() -> dict[str, Callable[[], int]]", "its result has no JSON form"),
        ("() -> object", "its result can be any object"),
        ("(x: 'Nowhere')", "a type is not known"),
        ("", "describe it in a docstring"),
    ],
)
def test_types_that_are_not_json_fail_at_registration(signature: str, complaint: str) -> None:
    found: dict[str, Any] = {}
    body = '"""Acts."""' if signature else "pass"
    exec(f"def act{signature or '()'}:\n    {body}", globals(), found)  # noqa: S102
    with pytest.raises(DefinitionError, match=complaint) as caught:
        tool()(found["act"])
    assert "tool act" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sentence", "complaint"),
    [
        ("Greet {who}", "names who, no argument"),
        ("Greet {x.__class__}", "not the bare name"),
        ("Greet {x!r}", "not the bare name"),
        ("Greet {x:>9}", "not the bare name"),
        ("Greet {}", "not the bare name"),
        ("Greet {x", "cannot be read"),
    ],
)
def test_a_sentence_may_only_name_arguments(sentence: str, complaint: str) -> None:
    def act(x: int) -> None:
        """Acts."""

    with pytest.raises(DefinitionError, match=complaint):
        tool(sentence=sentence)(act)


@pytest.mark.parametrize(("option", "value"), [("effect", "maybe"), ("risk", "huge")])
def test_an_unknown_effect_or_risk_is_refused_by_name(option: str, value: str) -> None:
    def act() -> None:
        """Acts."""

    with pytest.raises(DefinitionError, match=f"'{value}' is not one of"):
        tool(**{option: value})(act)  # type: ignore[arg-type]


def test_an_agent_forbids_input_it_does_not_name() -> None:
    assert spec_of().input_schema["additionalProperties"] is False
    assert spec_of().steps is None


def test_two_hands_of_an_agent_cannot_have_one_name() -> None:
    with pytest.raises(DefinitionError, match=r"agent a: two of its .* named greet"):
        spec_of(tools=[greet], subagents=[spec_of("greet")])


@pytest.mark.parametrize("name", ["", "Greeter", "two words", "../etc", "a" * 65])
def test_a_name_is_an_identifier_in_lower_case(name: str) -> None:
    with pytest.raises(DefinitionError, match="lower case"):
        spec_of(name)


def _agent(**changes: Any) -> str:
    return spec_of(**{"tools": [greet], **changes}).fingerprint


def _greet_with(**changes: Any) -> Any:
    terms: dict[str, Any] = {"effect": "idempotent", "approval": True, "risk": "high"}
    return tool(**{**terms, **changes})(greet.function)


def test_the_fingerprint_covers_every_behaviour_of_the_agent() -> None:
    @script
    def other(_: Turn) -> Any:
        return say("other")

    variants = [
        _agent(),
        _agent(instructions="Do not."),
        _agent(model=other),
        _agent(tools=[]),
        _agent(tools=[_greet_with(effect="write")]),
        _agent(tools=[_greet_with(risk="low")]),
        _agent(tools=[_greet_with(approval=False)]),
        _agent(subagents=[spec_of("c")]),
        _agent(model=None),
        _agent(model="openai:x"),
        _agent(model="openai:y"),
        _agent(models=["openai:x"]),
        _agent(temperature=0.0),
        _agent(temperature=0.5),
        _agent(max_tokens=100),
        _agent(approvals="every_call"),
        _agent(approvals="medium"),
        _agent(tools=[_greet_with(effect="read")]),
        _agent(tools=[_greet_with(effect="transactional")]),
        _agent(tools=[_greet_with(secret_args=["name"])]),
        _agent(tools=[_greet_with(secret_result=True)]),
    ]
    assert len(set(variants)) == len(variants)
    assert _agent() == _agent(steps=["one"]) == _agent(temperature=None, max_tokens=None)
    assert _agent(model="openai:x") == _agent(model=None, models=["openai:x"])
    assert all(variant.startswith("sha256:") for variant in variants)
    retried = _greet_with(retry=RetryPolicy(attempts=9, base=1.0, ceiling=1.0), expires_in=60)
    assert _agent(tools=[retried]) == _agent(tools=[_greet_with()])


def test_the_result_schema_follows_the_return_type() -> None:
    def nothing() -> None:
        """Acts."""

    def anything() -> Any:
        """Acts."""

    def silent_on_it():  # type: ignore[no-untyped-def]
        """Acts."""

    assert (greet.result_schema or {})["properties"]["text"]["type"] == "string"
    assert tool()(nothing).result_schema == {"type": "null"}
    assert tool()(anything).result_schema is None
    assert tool()(silent_on_it).result_schema is None


def test_a_tool_declares_its_attempts_and_time_to_decide() -> None:
    patient = RetryPolicy(attempts=9, base=2.0, ceiling=60.0)
    spec = tool(retry=patient, expires_in=3600)(greet.function)
    assert (spec.retry, spec.expires_in) == (patient, 3600)
    assert (greet.retry, greet.expires_in) == (TOOL_RETRIES, None)


@pytest.mark.parametrize(
    "option",
    [
        {"retry": RetryPolicy(attempts=0, base=1.0, ceiling=1.0)},
        {"retry": RetryPolicy(attempts=1, base=2.0, ceiling=1.0)},
        {"retry": RetryPolicy(attempts=1, base=-1.0, ceiling=1.0)},
        {"retry": RetryPolicy(attempts=1, base=1.0, ceiling=1.0, on=("request",))},
        {"retry": RetryPolicy(attempts=1, base=1.0, ceiling=1.0, on=("unknown",))},
        {"expires_in": 0},
        {"expires_in": float("inf")},
        {"deadline": -1},
    ],
)
def test_times_that_cannot_be_kept_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="tool greet: "):
        tool(**option)(greet.function)


def test_an_agent_sets_times_and_approval_of_a_tool_for_itself() -> None:
    ours = greet.with_settings(deadline=5).with_settings(expires_in=60, approval=True)
    assert (ours.deadline, ours.expires_in, ours.approval) == (5, 60, True)
    assert (greet.deadline, greet.expires_in) == (30, None)
    plain = spec_of(tools=[ours])
    assert plain.tools == (ours,)
    assert "deadline" not in str(replace(plain, tools=(greet,)).definition)


def test_a_waived_approval_is_listed() -> None:
    asking = _greet_with()
    assert asking.with_settings(approval=False).waived
    assert asking.with_settings(approval=False).with_settings(deadline=5).waived
    assert not asking.with_settings(approval=False).with_settings(approval=True).waived
    assert not _greet_with(approval=False).with_settings(approval=False).waived


@pytest.mark.parametrize(
    "setting", [{"deadline": 0}, {"expires_in": float("inf")}, {"approval": "no"}]
)
def test_settings_that_cannot_be_kept_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="tool greet: with_settings: "):
        greet.with_settings(**setting)


@pytest.mark.parametrize("effect", list(EffectClass))
def test_every_effect_class_can_be_declared(effect: EffectClass) -> None:
    assert tool(effect=str(effect))(greet.function).effect is effect


@pytest.mark.parametrize(
    ("approvals", "gated"),
    [
        ("by_tool", {"low": False, "medium": False, "high": False}),
        ("every_call", {"low": True, "medium": True, "high": True}),
        ("low", {"low": True, "medium": True, "high": True}),
        ("medium", {"low": False, "medium": True, "high": True}),
        (Risk.HIGH, {"low": False, "medium": False, "high": True}),
    ],
)
def test_an_agent_can_add_gates_to_its_tools_but_remove_none(
    approvals: Any, gated: dict[str, bool]
) -> None:
    spec = spec_of(approvals=approvals)
    assert {str(risk): spec.requires_approval(risk, asked=False) for risk in Risk} == gated
    assert all(spec.requires_approval(risk, asked=True) for risk in Risk)


@pytest.mark.parametrize(
    "option",
    [
        {"models": ["large"]},
        {"models": ["openai:"]},
        {"model": "gpt-x"},
        {"model": "openai:x", "models": ["openai:y"]},
        {"model": 7},
        {"temperature": 2.1},
        {"temperature": "hot"},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"models": ["openai:x", "openai:x"]},
        {"retry": RetryPolicy(attempts=0, base=1.0, ceiling=1.0)},
        {"deadline": 0},
    ],
)
def test_models_that_cannot_be_asked_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="agent a: "):
        _agent(**option)


def test_an_unknown_approval_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DefinitionError, match="by_tool, every_call, low, medium, high"):
        _agent(approvals="never")


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("agents.gateway.scripted", "agents.sdk.scripts", "script"),
        ("agents.tools.waits", "agents.tools.timers", "sleep_until"),
    ],
)
def test_old_module_names_work_and_log_a_warning(
    old: str, new: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    sys.modules.pop(old, None)
    found = importlib.import_module(old)
    assert getattr(found, name) is getattr(importlib.import_module(new), name)
    (line,) = caplog.messages
    assert line == f"{old} is now {new}; the old name goes with the next release"


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [("agents.sdk", "Blame", "FailureCause"), ("agents.testing", "Made", "ToolCall")],
)
def test_old_names_work_and_log_a_warning(
    module: str, old: str, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = importlib.import_module(module)
    assert getattr(found, old) is getattr(found, new)
    assert not hasattr(found, "Nothing")
    (line,) = caplog.messages
    assert line == f"{module}.{old} is now {module}.{new}; the old name goes with the next release"


def test_the_old_argument_of_not_done_works_and_logs_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert NotDone(blame="network").cause is FailureCause.NETWORK
    (line,) = caplog.messages
    assert line == "NotDone(blame=…) is now cause=…; the old name goes with the next release"
