"""Checks the arguments of `tool` and `agent`, one function for each. `where` begins the text of a DefinitionError."""

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

from agents.credentials.providers import Credential
from agents.endpoints import NAMED
from agents.errors import DefinitionError
from agents.sdk import conditions, mistakes, previews
from agents.sdk.prompts import Prompt
from agents.sdk.signature import Signature, json_schema_of
from agents.sdk.spec import (
    FINAL_ANSWER,
    ApprovalMode,
    Compaction,
    Condition,
    Holds,
    positive,
)
from agents.sdk.thread_memory import ThreadMemory
from runtime.core.call_options import RetryPolicy
from runtime.core.effect_classes import RULES
from runtime.core.enums import RISKS, EffectClass, FailureCause, Risk
from runtime.core.limits import MAX_REMEMBERED, MAX_SUMMARY_TOKENS, MIN_SUMMARY_TOKENS
from runtime.core.placeholders import placeholders

T = TypeVar("T")

MAX_TOKENS = 1_000_000  # of one reply
MAX_DENY_REASONS, MAX_DENY_REASON = 8, 120  # texts that a tool suggests, and characters of each

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def instructions(given: Any, where: str) -> str:
    """Return the text, or the source of the function: a change of either is a new version of the agent."""
    if isinstance(given, str):
        return inspect.cleandoc(given)
    if isinstance(given, Prompt):
        return given.text
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


def prompt_name(given: Any, schema: dict[str, Any], where: str) -> str:
    """Return the name of the prompt, empty without one. Each variable of its text must be a field of the input."""
    if not isinstance(given, Prompt):
        return ""
    try:
        unknown = placeholders(given.text) - set(schema.get("properties", {}))
    except ValueError as exc:
        raise DefinitionError(f"{where}: the text of its prompt: {exc}") from exc
    if unknown:
        raise DefinitionError(
            f"{where}: its input has no field {min(unknown)}, which its prompt {given.name} names"
        )
    return given.name


def input_schema(input: Any, where: str) -> dict[str, Any]:
    """Return the JSON Schema of the agent's input."""
    _require_model(input, "input", where)
    return json_schema_of(TypeAdapter(input), f"{where}: its input")


def output(output: Any, names: Sequence[str], where: str) -> dict[str, Any]:
    """Return the JSON Schema that the agent's model gets for its result."""
    _require_model(output, "output", where)
    if FINAL_ANSWER in names:
        raise DefinitionError(
            f"{where}: its model gives the output with a tool named {FINAL_ANSWER}: give your tool another name"
        )
    return json_schema_of(TypeAdapter(output), f"{where}: its output")


def _require_model(value: Any, name: str, where: str) -> None:
    if not (isinstance(value, type) and issubclass(value, BaseModel)):
        raise DefinitionError(
            f"{where}: {name} must be a Pydantic model, not {value!r}: write `class Order(BaseModel): number: str`,"
            f" then `{name}=Order`"
        )


def effect(value: Any, function: Callable[..., Any], where: str) -> EffectClass:
    """Return the effect class. An async function cannot be transactional."""
    effect: EffectClass = member(EffectClass, value, where)
    if RULES[effect].commits_with_entry and inspect.iscoroutinefunction(function):
        raise DefinitionError(
            f"{where}: a transactional tool cannot be async: Django's connection is not"
        )
    return effect


def each(kind: type[T], given: Sequence[Any], where: str, wanted: str) -> tuple[T, ...]:
    """Return the valid items. Mistakes that were already noted are left out."""
    others = [one for one in given if not isinstance(one, kind | mistakes.Unusable)]
    if others:
        named = ", ".join(str(getattr(one, "__name__", repr(one))) for one in others)
        raise DefinitionError(f"{where}: {named}: each of them is {wanted}")
    return tuple(one for one in given if isinstance(one, kind))


def script(model: Any, where: str) -> Callable[..., Any] | None:
    """Return the script, None if `model` is a name or missing."""
    if model is None or isinstance(model, str):
        return None
    if not callable(model):
        raise DefinitionError(
            f"{where}: model is a script, or the name of a provider's model such as openai:…, not {model!r}"
        )
    script: Callable[..., Any] = model
    return script


def temperature(given: float | None, where: str) -> float | None:
    """Return the temperature: a number from 0 to 2, or None."""
    if given is not None and not (type(given) in (int, float) and 0 <= given <= 2):
        raise DefinitionError(f"{where}: temperature must be a number from 0 to 2, not {given!r}")
    return given


def max_tokens(given: int | None, where: str) -> int | None:
    """Return the limit of a reply's tokens: a whole number from 1 to MAX_TOKENS, or None."""
    if given is not None and not (type(given) is int and 1 <= given <= MAX_TOKENS):
        raise DefinitionError(
            f"{where}: max_tokens must be a whole number from 1 to {MAX_TOKENS}, not {given!r}"
        )
    return given


def compaction(given: Compaction | None, where: str) -> Compaction | None:
    """Return the compaction, which needs a size from which it applies."""
    if given is None:
        return None
    if given.messages is None and given.bytes is None:
        raise DefinitionError(f"{where}: compaction needs messages or bytes to begin at")
    if (given.messages is not None and given.messages < 4) or (
        given.bytes is not None and given.bytes < 1_000
    ):
        raise DefinitionError(f"{where}: compaction begins at 4 messages or 1000 bytes, or later")
    return given


def thread_memory(given: ThreadMemory | None, where: str) -> ThreadMemory | None:
    """Return the memory of an agent's threads."""
    if given is not None and not isinstance(given, ThreadMemory):
        raise DefinitionError(
            f"{where}: thread_memory must be last(…) or summary(…), not {given!r}"
        )
    if given is not None and (type(given.last) is not int or not 1 <= given.last <= MAX_REMEMBERED):
        raise DefinitionError(f"{where}: thread_memory=last(…) takes 1 to {MAX_REMEMBERED} texts")
    least, most = MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS
    if (
        given is not None
        and given.summary != 0
        and not (type(given.summary) is int and least <= given.summary <= most)
    ):
        raise DefinitionError(f"{where}: thread_memory=summary(…) takes {least} to {most} tokens")
    return given


def name(name: str, where: str) -> str:
    """Return the name: lower-case letters, digits and underscores, at most 64."""
    if not NAME.fullmatch(name):
        raise DefinitionError(f"{where}: a name is lower case letters, digits and _, at most 64")
    return name


def description(text: str | None, where: str) -> str:
    """Return the description without its indentation. An empty one is refused."""
    if not text or not text.strip():
        raise DefinitionError(f"{where}: describe it in a docstring or with `description`")
    return inspect.cleandoc(text)


def member(kind: Any, value: Any, where: str) -> Any:
    """Return the member of an enum with this value."""
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(kind)
        raise DefinitionError(f"{where}: {value!r} is not one of {allowed}") from None


def approvals(value: Any, where: str) -> ApprovalMode | Risk:
    """Return the approval mode, or the risk from which calls need approval."""
    if value in RISKS:
        return Risk(value)
    if value in tuple(ApprovalMode):
        return ApprovalMode(value)
    allowed = ", ".join([*ApprovalMode, *Risk])
    raise DefinitionError(f"{where}: {value!r} is not one of {allowed}")


def holds(holds: Holds, where: str) -> Holds:
    """Return the rules for holds."""
    if holds.every is not None and holds.every < 1:
        raise DefinitionError(f"{where}: holds.every must be a number of replies, at least 1")
    if holds.after is not None:
        positive(holds.after, "holds.after", where)
    return holds


def retry(policy: RetryPolicy, where: str) -> RetryPolicy:
    """Return the retry policy. It may not repeat calls whose request is wrong."""
    if policy.attempts < 1 or not 0 <= policy.base <= policy.ceiling < float("inf"):
        raise DefinitionError(
            f"{where}: retry needs at least one attempt, and 0 <= base <= ceiling seconds"
        )
    if policy.on is None:
        return policy
    on = tuple(member(FailureCause, cause, f"{where}: retry") for cause in policy.on)
    if FailureCause.REQUEST in on:
        raise DefinitionError(f"{where}: a wrong request stays wrong: retry cannot name it")
    return replace(policy, on=on)


def models(model: Any, models: Sequence[str], where: str) -> tuple[str, ...]:
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


def isolate(function: Callable[..., Any], effect: EffectClass, where: str) -> bool:
    """Return True for a function that a child process can import and call."""
    if RULES[effect].commits_with_entry:
        raise DefinitionError(
            f"{where}: a transactional tool cannot be isolated: its transaction is the worker's"
        )
    if function.__qualname__ != function.__name__:
        raise DefinitionError(
            f"{where}: an isolated tool must be a function of its module, where its process finds it"
        )
    return True


def risk(given: Any, signature: Signature, where: str) -> Risk | Condition:
    """Return the risk of all calls, or the function that judges each."""
    if not callable(given):
        found: Risk = member(Risk, given, where)
        return found
    return _condition(given, "risk", signature, where)


def approval(given: Any, signature: Signature, where: str) -> bool | Condition:
    """Return whether each call needs a person, or the function that judges each."""
    if callable(given):
        return _condition(given, "approval", signature, where)
    if not isinstance(given, bool):
        raise DefinitionError(
            f"{where}: approval is True, False or a function of its arguments, not {given!r}"
        )
    return given


def before(given: Any, what: str, signature: Signature, where: str) -> Condition | None:
    """Return a function that is called before the effect, with arguments by name and perhaps the context."""
    if given is None:
        return None
    return _condition(given, what, signature, where, more=("context",))


def preview_ignores(names: Sequence[str], preview: Any, where: str) -> tuple[str, ...]:
    """Return the parts of previews that do not matter."""
    wrong = [name for name in names if name.partition(".")[0] not in previews.PARTS]
    if isinstance(names, str) or wrong or (names and preview is None):
        raise DefinitionError(
            f"{where}: preview_ignores must be a list of parts of its preview: {', '.join(previews.PARTS)}, "
            "or of their entries, as in counts.sessions"
        )
    return tuple(names)


def _condition(
    given: Any, what: str, signature: Signature, where: str, more: Sequence[str] = ()
) -> Condition:
    conditions.check(given, what, {*signature.schema["properties"], *more}, where)
    condition: Condition = given
    return condition


def schema(signature: Signature, secret: Sequence[str]) -> dict[str, Any]:
    """Return the schema of the arguments. One that is secret and may be missing is marked as `writeOnly`.

    So a page that offers the missing arguments leaves it out. One that is given is known by its seal.
    """
    properties = {
        name: {**rule, "writeOnly": True} if name in secret and name in signature.defaults else rule
        for name, rule in signature.schema["properties"].items()
    }
    return {**signature.schema, "properties": properties}


def secret_args(names: Sequence[str], signature: Signature, where: str) -> frozenset[str]:
    """Return the names of secret arguments, each of which the function must have."""
    unknown = sorted(set(names) - set(signature.schema["properties"]))
    if isinstance(names, str) or unknown:
        raise DefinitionError(f"{where}: secret_args must be names of its arguments")
    return frozenset(names)


def deny_reasons(given: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the suggested reasons for a denial: a few short texts, each in one line."""
    texts = [one for one in given if isinstance(one, str) and one.strip() and one.isprintable()]
    fits = len(given) <= MAX_DENY_REASONS and all(len(one) <= MAX_DENY_REASON for one in texts)
    if isinstance(given, str) or len(texts) != len(given) or not fits:
        wanted = f"at most {MAX_DENY_REASONS} texts, each one line of at most {MAX_DENY_REASON} characters"
        raise DefinitionError(f"{where}: deny_reasons must be {wanted}")
    return tuple(texts)


def credentials(
    given: Sequence[Credential], signature: Signature, where: str
) -> tuple[Credential, ...]:
    """Return the credentials, each with a name of its own. The function must take the context that has them."""
    names = [getattr(one, "name", None) for one in given]
    if not all(isinstance(name, str) and NAME.fullmatch(name) for name in names):
        raise DefinitionError(f"{where}: each of its credentials has a name, such as crm")
    if len(set(names)) < len(names):
        raise DefinitionError(f"{where}: two of its credentials have one name")
    if given and not signature.wants_context:
        raise DefinitionError(
            f"{where}: its first parameter must be `context: ToolContext`, which has the credentials"
        )
    return tuple(given)


def sentence(sentence: str | None, name: str, signature: Signature, where: str) -> str:
    """Return the sentence, by default one with all arguments."""
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


def refuse_duplicates(names: Sequence[str], where: str) -> None:
    """Raise DefinitionError if a name occurs twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DefinitionError(
            f"{where}: two of its tools or sub-agents are named {', '.join(twice)}"
        )
