"""Defines tools and agents: `@tool` on a typed function, `agent(…)` around instructions, model and tools."""

import inspect
import re
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from agents.endpoints import NAMED
from agents.errors import DefinitionError, NotDone, ToolError
from agents.sdk import mistakes
from agents.sdk.budget import Budget
from agents.sdk.signature import Signature, json_schema_of, read_signature
from agents.sdk.spec import (
    DEFAULT_DEADLINE,
    FINAL_ANSWER,
    AgentSpec,
    Approvals,
    Compaction,
    Holds,
    ToolSpec,
    placeholders,
    positive,
)
from runtime.core.call_options import (
    MODEL_DEADLINE,
    MODEL_RETRIES,
    TOOL_RETRIES,
    RetryPolicy,
)
from runtime.core.effect_classes import RULES
from runtime.core.enums import Blame, EffectClass, Risk

__all__ = [
    "Blame",
    "Budget",
    "Compaction",
    "Holds",
    "NotDone",
    "RetryPolicy",
    "ToolContext",
    "ToolError",
    "agent",
    "tool",
]

T = TypeVar("T")

MOST_TOKENS = 1_000_000  # of one reply

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

# What a person may report of a call whose result is secret: that it happened, and nothing else.
_NOTHING = {"type": "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool is told about its call, if its first parameter is `context: ToolContext`.

    `key` is the idempotency key: the same for every attempt at this call, and for no other call.
    Hand it to the system you write to. `deadline` is in seconds from the start of this attempt.
    `requester` is the name of the person who started the run, `business_key` the run's business key if it has one;
    `input` is the calling agent's input, as JSON.
    """

    run: UUID
    frame: str
    call: str
    attempt: int
    key: str
    deadline: float
    requester: str = ""
    business_key: str | None = None
    input: Any = None
    began: float = field(default_factory=time.monotonic)

    def remaining(self) -> float:
        """Return the seconds left, at least 0.1: most clients take a timeout of zero as none."""
        return max(0.1, self.began + self.deadline - time.monotonic())


def tool(
    *,
    effect: EffectClass | str = EffectClass.WRITE,
    approval: bool = False,
    risk: Risk | str = Risk.LOW,
    sentence: str | None = None,
    deadline: float = DEFAULT_DEADLINE,
    retry: RetryPolicy = TOOL_RETRIES,
    expires_in: float | None = None,
    secret_args: Sequence[str] = (),
    secret_result: bool = False,
    isolate: bool = False,
) -> Callable[[Callable[..., Any]], ToolSpec]:
    """Make a tool of a typed function: its name, docstring and types are what the model is shown.

    `effect` says what a lost call means, `approval` that a person must allow each call, `sentence` how
    to put one call in words, with arguments in braces. `retry` is for calls that certainly did nothing
    or may be repeated; `expires_in` is how many seconds people have to decide. What `secret_args` and
    `secret_result` name is stored encrypted; only the model and the function see it.
    A transactional tool writes through Django; it must not commit. `isolate` runs the function in a process of its
    own, which is killed at the deadline. Raises DefinitionError when that
    cannot work.
    """

    def made(function: Callable[..., Any]) -> ToolSpec:
        where = f"tool {function.__name__}"
        signature = read_signature(function, where, context=ToolContext)
        return ToolSpec(
            name=_name(function.__name__, where),
            description=_description(inspect.getdoc(function), where),
            function=function,
            arguments=signature.arguments,
            schema=signature.schema,
            result=signature.result,
            result_schema=_NOTHING if secret_result else signature.result_schema,
            defaults=signature.defaults,
            effect=_effect(effect, function, where),
            risk=_member(Risk, risk, where),
            approval=approval,
            sentence=_sentence(sentence, function.__name__, signature, where),
            deadline=positive(deadline, "deadline", where),
            wants_context=signature.wants_context,
            retry=_retry(retry, where),
            expires_in=None if expires_in is None else positive(expires_in, "expires_in", where),
            secret_args=_secret_args(secret_args, signature, where),
            secret_result=secret_result,
            isolate=_isolate(function, effect, where) if isolate else False,
        )

    return mistakes.noting(made)


@mistakes.noting
def agent(
    *,
    name: str,
    description: str,
    instructions: str | Callable[[Any], str],
    input: type[BaseModel],
    model: Callable[..., Any] | str | None = None,
    tools: Sequence[ToolSpec] = (),
    subagents: Sequence[AgentSpec] = (),
    steps: Sequence[str] | None = None,
    approvals: Approvals | Risk | str = Approvals.BY_TOOL,
    models: Sequence[str] = (),
    retry: RetryPolicy = MODEL_RETRIES,
    deadline: float = MODEL_DEADLINE,
    holds: Holds | None = None,
    compaction: Compaction | None = None,
    budget: Budget | None = None,
    output: type[BaseModel] | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
) -> AgentSpec:
    """Define an agent; assign it to a name of the module, or the registry does not find it.

    `input` is a Pydantic model: the web checks an input against its JSON Schema, then the first worker reads it with
    the model and passes the result to the agent. `instructions` are a text, or a function of the input that returns
    one and is called once, when the agent begins.
    To a model a sub-agent is one more tool, named like the agent, whose arguments are the agent's input.
    `steps` tell reviewers what the agent means to do. `approvals` says which calls wait for a person:
    `by_tool`, `every_call`, or a risk for all calls from that risk up; a tool that asks for a person gets
    one in any case. `model` is a script, or the name of a provider's model such as `openai:…`; without either the
    installation's models answer. `models` are asked instead of those, each after the attempts at the previous one are
    used up, unless a script answers; `retry` says how often each is asked, `deadline` how many seconds one attempt
    may take. `temperature` (0 to 2) and `max_tokens` (of one reply) go with each request. `holds` says when
    the agent stops before its next model call until a person continues it, `compaction` when earlier messages give
    way to a summary. `budget` limits each activation of the agent, with all below it: where it is used up, people
    are asked. `output` is the Pydantic model of its result, which is checked before the agent is done; without it
    the agent answers with text. Raises DefinitionError when that cannot work.
    """
    where = f"agent {name}"
    tools = _each(ToolSpec, tools, f"{where}: tools", "a function with @tool")
    subagents = _each(AgentSpec, subagents, f"{where}: subagents", "made by agent(…)")
    names = [*(tool.name for tool in tools), *(one.name for one in subagents)]
    _refuse_duplicates(names, where)
    schema = json_schema_of(TypeAdapter(input), f"{where}: its input")
    return AgentSpec(
        name=_name(name, where),
        description=_description(description, where),
        instructions=_instructions(instructions, where),
        instruct=None if isinstance(instructions, str) else instructions,
        model=_script(model, where),
        temperature=_temperature(temperature, where),
        max_tokens=_max_tokens(max_tokens, where),
        input=input,
        input_schema={**schema, "additionalProperties": False},
        tools=tools,
        subagents=subagents,
        steps=None if steps is None else tuple(steps),
        approvals=_approvals(approvals, where),
        models=_models(model, models, where),
        retry=_retry(retry, where),
        deadline=positive(deadline, "deadline", where),
        holds=_holds(holds or Holds(), where),
        compaction=_compaction(compaction, where),
        budget=None if budget is None else budget.read(where),
        output=output,
        output_schema=None if output is None else _output(output, names, where),
    )


def _instructions(given: Any, where: str) -> str:
    """Return the text, or the source of the function: a change of either is a new version of the agent."""
    if isinstance(given, str):
        return inspect.cleandoc(given)
    if (
        not inspect.isfunction(given)
        or inspect.iscoroutinefunction(given)
        or given.__name__ == "<lambda>"
        or len(inspect.signature(given).parameters) != 1
    ):
        raise DefinitionError(f"{where}: instructions are a text, or a def with the input alone")
    try:
        return textwrap.dedent(inspect.getsource(given)).strip()
    except OSError as exc:
        raise DefinitionError(
            f"{where}: the source of its instructions cannot be read, but it is part of the agent's version"
        ) from exc


def _output(output: Any, names: Sequence[str], where: str) -> dict[str, Any]:
    """Return the JSON Schema of the result that the agent's model is given."""
    if not (isinstance(output, type) and issubclass(output, BaseModel)):
        raise DefinitionError(f"{where}: output must be a Pydantic model, not {output!r}")
    if FINAL_ANSWER in names:
        raise DefinitionError(
            f"{where}: its model gives the output with a tool named {FINAL_ANSWER}: give your tool another name"
        )
    return json_schema_of(TypeAdapter(output), f"{where}: its output")


def _effect(value: Any, function: Callable[..., Any], where: str) -> EffectClass:
    effect: EffectClass = _member(EffectClass, value, where)
    if RULES[effect].commits_with_entry and inspect.iscoroutinefunction(function):
        raise DefinitionError(
            f"{where}: what is transactional is not async: Django's connection is not"
        )
    return effect


def _each(kind: type[T], given: Sequence[Any], where: str, wanted: str) -> tuple[T, ...]:
    """The ones that can be used; those that were noted as mistakes already are left out."""
    others = [one for one in given if not isinstance(one, kind | mistakes.Unusable)]
    if others:
        named = ", ".join(str(getattr(one, "__name__", repr(one))) for one in others)
        raise DefinitionError(f"{where}: {named}: each of them is {wanted}")
    return tuple(one for one in given if isinstance(one, kind))


def _script(model: Any, where: str) -> Callable[..., Any] | None:
    if model is None or isinstance(model, str):
        return None
    if not callable(model):
        raise DefinitionError(
            f"{where}: model is a script, or the name of a provider's model such as openai:…, not {model!r}"
        )
    script: Callable[..., Any] = model
    return script


def _temperature(given: float | None, where: str) -> float | None:
    if given is not None and not (type(given) in (int, float) and 0 <= given <= 2):
        raise DefinitionError(f"{where}: temperature must be a number from 0 to 2, not {given!r}")
    return given


def _max_tokens(given: int | None, where: str) -> int | None:
    if given is not None and not (type(given) is int and 1 <= given <= MOST_TOKENS):
        raise DefinitionError(
            f"{where}: max_tokens must be a whole number from 1 to {MOST_TOKENS}, not {given!r}"
        )
    return given


def _compaction(given: Compaction | None, where: str) -> Compaction | None:
    if given is None:
        return None
    if given.messages is None and given.bytes is None:
        raise DefinitionError(f"{where}: compaction needs messages or bytes to begin at")
    if (given.messages is not None and given.messages < 4) or (
        given.bytes is not None and given.bytes < 1_000
    ):
        raise DefinitionError(f"{where}: compaction begins at 4 messages or 1000 bytes, or later")
    return given


def _name(name: str, where: str) -> str:
    if not NAME.fullmatch(name):
        raise DefinitionError(f"{where}: a name is lower case letters, digits and _, at most 64")
    return name


def _description(text: str | None, where: str) -> str:
    if not text or not text.strip():
        raise DefinitionError(f"{where}: say in a docstring or description what it does")
    return inspect.cleandoc(text)


def _member(kind: Any, value: Any, where: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(kind)
        raise DefinitionError(f"{where}: {value!r} is not one of {allowed}") from None


def _approvals(value: Any, where: str) -> Approvals | Risk:
    if value in tuple(Risk):
        return Risk(value)
    if value in tuple(Approvals):
        return Approvals(value)
    allowed = ", ".join([*Approvals, *Risk])
    raise DefinitionError(f"{where}: {value!r} is not one of {allowed}")


def _holds(holds: Holds, where: str) -> Holds:
    if holds.every is not None and holds.every < 1:
        raise DefinitionError(f"{where}: holds.every must be a number of replies, at least 1")
    if holds.after is not None:
        positive(holds.after, "holds.after", where)
    return holds


def _retry(policy: RetryPolicy, where: str) -> RetryPolicy:
    if policy.attempts < 1 or not 0 <= policy.base <= policy.ceiling < float("inf"):
        raise DefinitionError(
            f"{where}: retry needs at least one attempt, and 0 <= base <= ceiling seconds"
        )
    if policy.on is None:
        return policy
    on = tuple(_member(Blame, blame, f"{where}: retry") for blame in policy.on)
    if Blame.REQUEST in on:
        raise DefinitionError(f"{where}: what is wrong with a request stays wrong: no retry on it")
    return replace(policy, on=on)


def _models(model: Any, models: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the names of providers' models, from `model` or `models`."""
    names = (models,) if isinstance(models, str) else tuple(models)
    if isinstance(model, str):
        if names:
            raise DefinitionError(f"{where}: name {model!r} in models alone, and leave model out")
        names = (model,)
    for name in names:
        if not NAMED.fullmatch(name):
            raise DefinitionError(
                f"{where}: a model is named provider:model, such as openai:…, not {name!r}"
            )
    if len(set(names)) < len(names):
        raise DefinitionError(f"{where}: each of its models is listed once")
    return names


def _isolate(function: Callable[..., Any], effect: EffectClass | str, where: str) -> bool:
    if effect == EffectClass.TRANSACTIONAL:
        raise DefinitionError(
            f"{where}: a transactional tool cannot be isolated: its transaction is the worker's"
        )
    if function.__qualname__ != function.__name__:
        raise DefinitionError(
            f"{where}: an isolated tool must be a function of its module, where its process finds it"
        )
    return True


def _secret_args(names: Sequence[str], signature: Signature, where: str) -> frozenset[str]:
    unknown = sorted(set(names) - set(signature.schema["properties"]))
    if isinstance(names, str) or unknown:
        raise DefinitionError(f"{where}: secret_args must be names of its arguments")
    return frozenset(names)


def _sentence(sentence: str | None, name: str, signature: Signature, where: str) -> str:
    known = list(signature.schema["properties"])
    if sentence is None:
        listed = ", ".join(f"{argument} {{{argument}}}" for argument in known)
        return f"Call {name} with {listed}" if listed else f"Call {name}"
    try:
        unknown = placeholders(sentence) - set(known)
    except ValueError as exc:
        raise DefinitionError(f"{where}: its sentence cannot be read: {exc}") from exc
    if unknown:
        raise DefinitionError(
            f"{where}: its sentence names {', '.join(sorted(unknown))}, no argument"
        )
    return sentence


def _refuse_duplicates(names: Sequence[str], where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DefinitionError(
            f"{where}: two of its tools or sub-agents are named {', '.join(twice)}"
        )
