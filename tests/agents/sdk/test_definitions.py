"""Definitions that authors may write, and the errors for invalid ones."""

from collections.abc import Callable  # noqa: F401
from dataclasses import replace
from typing import Annotated, Any, Literal  # noqa: F401

import pytest
from pydantic import BaseModel, Field  # noqa: F401
from typing_extensions import TypedDict

from agents.errors import DefinitionError
from agents.sdk import Answer, Budget, Compaction, Holds, ToolContext, last, summary, tool
from agents.sdk.spec import ToolSpec
from runtime.core.values.call_options import TOOL_RETRIES, RetryPolicy
from runtime.core.values.enums import EffectClass, Risk
from tests.support.specs import Input, spec_of

PATIENT = RetryPolicy(attempts=9, base=2.0, ceiling=60.0)
OPTIONS_OF_TOOLS = ("effect", "risk", "approval", "retry", "isolate", "preview")
OPTIONS_OF_AGENTS = ("model", "models", "instructions", "tools", "retry", "holds", "budget", "plan")
WRONG: Any = "5"  # in place of a number
NEVER = RetryPolicy(attempts=0, base=1.0, ceiling=1.0)
INFINITE = float("inf")
TEXT_OR_DEF = "instructions are a text, or a def"
SPEC = spec_of("final_answer")


class Greeting(TypedDict):
    text: str


@tool(effect="idempotent", approval=True, risk="high", sentence="Greet {name} {times} times")
def greet(
    context: ToolContext, name: str, times: int = 1, tone: Literal["warm", "dry"] = "warm"
) -> Greeting:
    """Greets a person."""
    return {"text": f"{name} {times} {tone} {context.key}"}


class NotJsonAtAll:
    pass


def defined(header: str = "def act(x: int)", body: str = '"""Acts."""', **options: Any) -> ToolSpec:
    found: dict[str, Any] = {}
    exec(f"{header}:\n    {body}", globals(), found)  # noqa: S102
    return tool(**options)(found["act"])


def test_a_tool_is_described_by_its_signature() -> None:
    assert (greet.name, greet.description) == ("greet", "Greets a person.")
    assert (greet.effect, greet.risk, greet.approval) == (EffectClass.IDEMPOTENT, Risk.HIGH, True)
    assert (greet.deadline, greet.retry, greet.expires_in) == (30.0, TOOL_RETRIES, None)
    assert greet.defaults == {"times": 1, "tone": "warm"}
    assert list(greet.schema["properties"]) == ["name", "times", "tone"]
    assert (greet.schema["required"], greet.schema["additionalProperties"]) == (["name"], False)
    assert greet.schema["properties"]["times"]["default"] == 1
    assert (greet.result_schema or {})["properties"]["text"]["type"] == "string"


def test_a_plain_tool_is_a_write_without_approval() -> None:
    act = defined("def act(schema: str, copy: int) -> None")  # names of a class's attributes
    assert (act.effect, act.risk, act.approval) == (EffectClass.WRITE, Risk.LOW, False)
    assert act.sentence == "Call act with schema {schema}, copy {copy}"
    assert defined("def act()").sentence == "Call act"
    assert act.result_schema == {"type": "null"}
    assert defined("def act() -> Any").result_schema is defined("def act()").result_schema is None


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("def act(x: NotJsonAtAll)", "argument x has no JSON form"),
        ("def act(x)", "argument x has no type"),
        ("def act(*x: int)", "argument x cannot be given by name"),
        ("def act(x: int, context: ToolContext)", "the context must be the first parameter"),
        ("def act(x: float = INFINITE)", "the default of x: not a finite number"),
        ("def act(x: int = '1')", "the default of x is not of its type: .* a valid integer"),
        ("def act() -> NotJsonAtAll", "its result has no JSON form"),
        ("def act() -> dict[str, Callable[[], int]]", "its result has no JSON form"),
        ("def act() -> object", "its result can be any object"),
        ("def act(x: 'Nowhere')", "a type is not known"),
        ("def act(x: Annotated[str, Field(pattern='(')])", "argument x has no JSON form"),
    ],
)
def test_types_that_are_not_json_fail_at_registration(header: str, complaint: str) -> None:
    with pytest.raises(DefinitionError, match=f"^tool act.*{complaint}") as caught:
        defined(header)
    assert "\n" not in str(caught.value)


BAD_REASONS: tuple[Any, ...] = (["x"] * 9, ["x" * 121], [""], ["a\nb"])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"body": "pass"}, "describe it in a docstring"),
        ({"body": "yield"}, "a call would run nothing"),
        ({"header": "async def act()", "body": "yield"}, "a call would run nothing"),
        *(({name: "huge"}, "'huge' is not one of") for name in ("effect", "risk")),
        ({"sentence": "Greet {who}"}, "names who, which is not an argument"),
        *(
            ({"sentence": name}, "not the bare name")
            for name in ("{x.__class__}", "{x!r}", "{x:>9}")
        ),
        ({"sentence": "Greet {x"}, "cannot be read"),
        ({"retry": NEVER}, "at least one attempt"),
        ({"retry": RetryPolicy(attempts=1, base=2.0, ceiling=1.0)}, "base <= ceiling"),
        ({"retry": RetryPolicy(attempts=1, base=-1.0, ceiling=1.0)}, "base <= ceiling"),
        ({"retry": replace(PATIENT, on=("request",))}, "cannot include `request`"),
        ({"retry": replace(PATIENT, on=("unknown",))}, "one of"),
        ({"retry": RetryPolicy(attempts=WRONG, base=1.0, ceiling=1.0)}, "retry needs numbers"),
        ({"expires_in": 0}, "expires_in must be greater than 0, not 0"),
        ({"deadline": INFINITE}, "deadline must be a finite number, not inf"),
        ({"deadline": "x"}, "deadline must be a valid number, not 'x'"),
        *(({name: 5}, f"{name} must be .*, not 5") for name in OPTIONS_OF_TOOLS),
        ({"credentials": ["crm"]}, "credentials.0 must be an instance of Credential, not 'crm'"),
        ({"secret_args": ["nothing"]}, "names of its arguments"),
        ({"secret_args": "x"}, "secret_args must be a list"),
        *(({"deny_reasons": bad}, "deny_reasons must be at most 8 texts") for bad in BAD_REASONS),
        ({"deny_reasons": [1]}, "deny_reasons.0 must be a valid string, not 1"),
        ({"effect": "transactional", "header": "async def act()"}, "cannot be async"),
        ({"effect": "transactional", "isolate": True}, "its transaction is the worker's"),
    ],
)
def test_invalid_options_of_a_tool_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=f"tool act: .*{complaint}"):
        defined(**options)


def test_a_tool_without_parentheses_says_what_to_write() -> None:
    with pytest.raises(DefinitionError, match=r"tool act: write @tool\(\) above it"):

        @tool
        def act() -> None:
            """Act."""


def test_an_isolated_tool_is_a_function_of_its_module() -> None:
    def inner(number: int) -> None:
        """Do."""

    with pytest.raises(DefinitionError, match="must be a function of its module"):
        tool(isolate=True)(inner)


def test_an_agent_sets_times_and_approval_of_a_tool_for_itself() -> None:
    ours = greet.with_settings(deadline=5).with_settings(expires_in=60)
    assert (ours.deadline, ours.expires_in, ours.approval, ours.waived) == (5, 60, True, False)
    assert (greet.deadline, greet.expires_in) == (30, None)
    assert "deadline" in str(spec_of(tools=[ours]).definition)
    assert "deadline" not in str(spec_of(tools=[greet]).definition)
    lax = greet.with_settings(approval=False)
    assert lax.waived
    assert lax.with_settings(deadline=5).waived
    assert not lax.with_settings(approval=True).waived
    assert not defined().with_settings(approval=False).waived
    for setting in ({"deadline": 0}, {"expires_in": INFINITE}, {"approval": "no"}):
        with pytest.raises(DefinitionError, match="with_settings greet: "):
            greet.with_settings(**setting)


async def late(case: Input) -> None: ...


def of_nothing() -> None: ...


NO_TEXTS: tuple[Any, ...] = (lambda case: "Do.", of_nothing, late, print, BaseModel)


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        *(({"name": name}, "lower case") for name in ("", "Greeter", "../etc", "a" * 65)),
        ({"tools": [greet], "subagents": [spec_of("greet")]}, r"two of its .* named greet"),
        *(({"models": [name]}, "provider:model") for name in ("large", "openai:")),
        ({"model": "gpt-x"}, "provider:model"),
        ({"model": "openai:x", "models": ["openai:y"]}, "in models alone"),
        ({"models": ["openai:x", "openai:x"]}, "listed once"),
        *(({name: 5}, f"{name} must be .*, not 5") for name in OPTIONS_OF_AGENTS),
        ({"input": {"text": str}}, "input must be a Pydantic model, such as `class Order"),
        ({"temperature": 2.1}, "temperature must be less than or equal to 2, not 2.1"),
        ({"max_tokens": 0}, "max_tokens must be greater than or equal to 1"),
        ({"tools": greet}, "tools must be a list, not ToolSpec"),
        ({"tools": [greet, len]}, "tools.1 must be a function with @tool, not len"),
        ({"steps": "abc"}, "steps must be a list, not 'abc'"),
        ({"titel": "A"}, "got an unexpected keyword argument 'titel'"),
        ({"answer": Answer(expires_in=WRONG)}, "answer.expires_in must be a valid number, not '5'"),
        ({"deadline": 0}, "deadline must be"),
        ({"approvals": "never"}, "by_tool, every_call, low, medium, high"),
        ({"budget": Budget(turns=WRONG)}, "budget.turns must be a valid integer, not '5'"),
        ({"budget": Budget(turns=0)}, "its budget: turns must be between 1 and 1000000"),
        ({"budget": Budget(depth=17)}, "its budget: depth must be between 1 and 16"),
        ({"budget": Budget(usd="free")}, "its budget: usd must be an amount such as 1.50"),
        ({"holds": Holds(every=0)}, "holds.every must be greater than or equal to 1"),
        ({"holds": Holds(after=0)}, "holds.after must be greater than 0"),
        ({"compaction": Compaction()}, "compaction needs"),
        ({"compaction": Compaction(messages=3)}, "messages must be .* 4, not 3"),
        ({"compaction": Compaction(bytes=999)}, "bytes must be .* 1000, not 999"),
        *(({"thread_memory": last(many)}, "thread_memory.last must be") for many in (0, 51, True)),
        *(
            ({"thread_memory": summary(many)}, "memory.summary must be 0")
            for many in (49, 4_001, True)
        ),
        ({"output": Input, "subagents": [SPEC]}, "give your tool another name"),
        *(({"instructions": text}, TEXT_OR_DEF) for text in NO_TEXTS),
    ],
)
def test_invalid_options_of_an_agent_are_refused(option: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=f"agent {option.get('name', 'a')}: .*{complaint}"):
        spec_of(**option)


def test_the_fingerprint_covers_every_behaviour_of_the_agent() -> None:
    def agent(**changes: Any) -> str:
        return spec_of(**{"tools": [greet], **changes}).fingerprint

    def greeting(**changes: Any) -> str:
        options = {"effect": "idempotent", "approval": True, "risk": "high", **changes}
        return agent(tools=[tool(**options)(greet.function)])

    variants = [  # and those that test_catalogue.py compares
        agent(),
        *(agent(model=model) for model in (None, "openai:x", "openai:y")),
        agent(models=["openai:x"]),
        *(agent(temperature=number) for number in (0.0, 0.5)),
        agent(max_tokens=100),
        *(agent(approvals=mode) for mode in ("every_call", "medium")),
        agent(output=Input),
        greeting(effect="transactional"),
        greeting(secret_result=True),
    ]
    assert len(set(variants)) == len(variants)
    assert agent() == agent(steps=["one"]) == agent(temperature=None, max_tokens=None)
    assert agent(model="openai:x") == agent(model=None, models=["openai:x"])
    assert agent() == greeting() == greeting(retry=PATIENT, expires_in=60)


def test_an_agent_can_add_gates_to_its_tools_but_remove_none() -> None:
    gated: dict[Any, list[Risk]] = {
        "by_tool": [],
        "every_call": list(Risk),
        "low": list(Risk),
        "medium": [Risk.MEDIUM, Risk.HIGH],
        Risk.HIGH: [Risk.HIGH],
    }
    for approvals, risks in gated.items():
        spec = spec_of(approvals=approvals)
        assert [risk for risk in Risk if spec.requires_approval(risk, by_tool=False)] == risks
        assert all(spec.requires_approval(risk, by_tool=True) for risk in Risk)
