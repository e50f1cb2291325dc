"""Checks the arguments of `tool` and `agent`, one function for each. `label` begins the text of a DefinitionError."""

import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import TypeAdapter

from agents.credentials import Credential
from agents.endpoints import NAMED
from agents.errors import DefinitionError
from agents.sdk import conditions, previews, spec
from agents.sdk.signature import ToolSignature, build_json_schema
from runtime.core.values.call_options import RetryPolicy
from runtime.core.values.enums import EFFECT_CLASSES, RISKS, EffectClass, FailureCause, Risk
from runtime.core.values.texts import find_placeholders

T = TypeVar("T")

MAX_TITLE = 60  # characters
MAX_DENY_REASONS, MAX_DENY_REASON = 8, 120  # texts that a tool suggests, and characters of each

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def check_instructions(instructions: Any, label: str) -> str:
    """Return the text, or the source of the function: a change of either is a new version of the agent."""
    if isinstance(instructions, str):
        return inspect.cleandoc(instructions)
    if isinstance(instructions, spec.Prompt):
        return instructions.text
    if (
        not inspect.isfunction(instructions)
        or inspect.iscoroutinefunction(instructions)
        or instructions.__name__ == "<lambda>"
        or len(inspect.signature(instructions).parameters) != 1
    ):
        raise DefinitionError(f"{label}: instructions are a text, or a def with the input alone")
    try:
        return textwrap.dedent(inspect.getsource(instructions)).strip()
    except OSError as exc:
        raise DefinitionError(
            f"{label}: the source of its instructions cannot be read, but it is part of the agent's version"
        ) from exc


def check_prompt_name(instructions: Any, schema: dict[str, Any], label: str) -> str:
    """Return the name of the prompt, or an empty text. Each variable of its text must be a field of the input."""
    if not isinstance(instructions, spec.Prompt):
        return ""
    try:
        unknown = find_placeholders(instructions.text) - set(schema.get("properties", {}))
    except ValueError as exc:
        raise DefinitionError(f"{label}: the text of its prompt: {exc}") from exc
    if unknown:
        raise DefinitionError(
            f"{label}: its input has no field {min(unknown)}, which its prompt {instructions.name} names"
        )
    return instructions.name


def build_input_schema(input: Any, label: str) -> dict[str, Any]:
    """Return the JSON Schema of the agent's input."""
    return build_json_schema(TypeAdapter(input), f"{label}: its input")


def build_output_schema(output: Any, names: Sequence[str], label: str) -> dict[str, Any]:
    """Return the JSON Schema that the agent's model gets for its result."""
    if spec.FINAL_ANSWER in names:
        raise DefinitionError(
            f"{label}: its model gives the output with a tool named {spec.FINAL_ANSWER}: give your tool another name"
        )
    return build_json_schema(TypeAdapter(output), f"{label}: its output")


def check_effect(value: Any, function: Callable[..., Any], label: str) -> EffectClass:
    """Return the effect class. An async function cannot be transactional."""
    effect: EffectClass = check_member(EffectClass, value, label)
    if EFFECT_CLASSES[effect].commits_with_entry and inspect.iscoroutinefunction(function):
        raise DefinitionError(
            f"{label}: a transactional tool cannot be async: Django's connection is not"
        )
    return effect


def select_usable(kind: type[T], entries: Sequence[Any]) -> tuple[T, ...]:
    """Return the items without those whose mistakes were already noted."""
    return tuple(entry for entry in entries if isinstance(entry, kind))


def check_compaction(compaction: spec.Compaction | None, label: str) -> spec.Compaction | None:
    """Return the compaction, which needs a size from which it applies."""
    if compaction is None:
        return None
    if compaction.messages is None and compaction.bytes is None:
        raise DefinitionError(f"{label}: compaction needs messages or bytes to begin at")
    return compaction


def check_name(name: str, label: str) -> str:
    """Return the name: lower-case letters, digits and underscores, at most 64."""
    if not NAME.fullmatch(name):
        raise DefinitionError(f"{label}: a name is lower case letters, digits and _, at most 64")
    return name


def check_description(text: str | None, label: str) -> str:
    """Return the description without its indentation. An empty one is refused."""
    if not text or not text.strip():
        raise DefinitionError(f"{label}: describe it in a docstring or with `description`")
    return inspect.cleandoc(text)


def check_title(text: str, label: str) -> str:
    """Return the title, one line of so many characters; empty for none."""
    if len(text) > MAX_TITLE or not text.isprintable() or text != text.strip():
        raise DefinitionError(f"{label}: title must be one line of at most {MAX_TITLE} characters")
    return text


def check_member(kind: Any, value: Any, label: str) -> Any:
    """Return the member of an enum with this value."""
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(kind)
        raise DefinitionError(f"{label}: {value!r} is not one of {allowed}") from None


def check_approvals(value: Any, label: str) -> spec.ApprovalMode | Risk:
    """Return the approval mode, or the risk from which calls need approval."""
    if value in RISKS:
        return Risk(value)
    if value in tuple(spec.ApprovalMode):
        return spec.ApprovalMode(value)
    allowed = ", ".join([*spec.ApprovalMode, *Risk])
    raise DefinitionError(f"{label}: {value!r} is not one of {allowed}")


def check_retry(policy: RetryPolicy, label: str) -> RetryPolicy:
    """Return the retry policy. It may not repeat invalid requests."""
    numbers = (policy.attempts, policy.base, policy.ceiling)
    if type(policy.attempts) is not int or {*map(type, numbers)} - {int, float}:
        raise DefinitionError(f"{label}: retry needs numbers, not {numbers}")
    if policy.attempts < 1 or not 0 <= policy.base <= policy.ceiling < float("inf"):
        raise DefinitionError(
            f"{label}: retry needs at least one attempt, and 0 <= base <= ceiling seconds"
        )
    if policy.on is None:
        return policy
    on = tuple(check_member(FailureCause, cause, f"{label}: retry") for cause in policy.on)
    if FailureCause.REQUEST in on:
        raise DefinitionError(
            f"{label}: retry cannot include `request`: an invalid request would fail again"
        )
    return replace(policy, on=on)


def check_models(model: Any, models: Sequence[str], label: str) -> tuple[str, ...]:
    """Return the names of providers' models, from `model` or `models`."""
    names = (models,) if isinstance(models, str) else tuple(models)
    if isinstance(model, str):
        if names:
            raise DefinitionError(f"{label}: name {model!r} in models alone, and leave model out")
        names = (model,)
    for name in names:
        if not NAMED.fullmatch(name):
            raise DefinitionError(
                f"{label}: a model is named provider:model, such as openai:…, not {name!r}"
            )
    if len(set(names)) < len(names):
        raise DefinitionError(f"{label}: each of its models is listed once")
    return names


def check_isolate(function: Callable[..., Any], effect: EffectClass, label: str) -> bool:
    """Return True for a function that a child process can import and call."""
    if EFFECT_CLASSES[effect].commits_with_entry:
        raise DefinitionError(
            f"{label}: a transactional tool cannot be isolated: its transaction is the worker's"
        )
    if function.__qualname__ != function.__name__:
        raise DefinitionError(
            f"{label}: an isolated tool must be a function of its module, where its process finds it"
        )
    return True


def check_risk(risk: Any, signature: ToolSignature, label: str) -> Risk | spec.Condition:
    """Return the risk of all calls, or the function that judges each."""
    if not callable(risk):
        level: Risk = check_member(Risk, risk, label)
        return level
    return _check_condition(risk, "risk", signature, label)


def check_approval(approval: Any, signature: ToolSignature, label: str) -> bool | spec.Condition:
    """Return whether each call needs a person, or the function that judges each."""
    if callable(approval):
        return _check_condition(approval, "approval", signature, label)
    result: bool = approval
    return result


def check_function(
    function: Any, setting: str, signature: ToolSignature, label: str
) -> spec.Condition | None:
    """Return a function that is called before the effect, with arguments by name and perhaps the context."""
    if function is None:
        return None
    return _check_condition(function, setting, signature, label, extra_arguments=("context",))


def check_preview_ignores(names: Sequence[str], preview: Any, label: str) -> tuple[str, ...]:
    """Return the parts of previews that do not matter."""
    wrong = [name for name in names if name.partition(".")[0] not in previews.PARTS]
    if wrong or (names and preview is None):
        raise DefinitionError(
            f"{label}: preview_ignores must be a list of parts of its preview: {', '.join(previews.PARTS)}, "
            "or of their entries, as in counts.sessions"
        )
    return tuple(names)


def _check_condition(
    function: Any,
    setting: str,
    signature: ToolSignature,
    label: str,
    extra_arguments: Sequence[str] = (),
) -> spec.Condition:
    conditions.check(function, setting, {*signature.schema["properties"], *extra_arguments}, label)
    condition: spec.Condition = function
    return condition


def build_arguments_schema(signature: ToolSignature, secret: Collection[str]) -> dict[str, Any]:
    """Return the schema of the arguments. One that is secret and may be missing is marked as `writeOnly`.

    So the page that offers missing arguments leaves it out. A secret that is present is recognised by its seal.
    """
    properties = {
        name: {**rule, "writeOnly": True} if name in secret and name in signature.defaults else rule
        for name, rule in signature.schema["properties"].items()
    }
    return {**signature.schema, "properties": properties}


def check_secret_args(
    names: Collection[str], signature: ToolSignature, label: str
) -> frozenset[str]:
    """Return the names of secret arguments, each of which the function must have."""
    unknown = sorted(set(names) - set(signature.schema["properties"]))
    if unknown:
        raise DefinitionError(f"{label}: secret_args must be names of its arguments")
    return frozenset(names)


def check_deny_reasons(reasons: Sequence[str], label: str) -> tuple[str, ...]:
    """Return the suggested reasons for a denial: a few short texts, each in one line."""
    fits = (
        text.strip() and text.isprintable() and len(text) <= MAX_DENY_REASON for text in reasons
    )
    if len(reasons) > MAX_DENY_REASONS or not all(fits):
        requirement = f"at most {MAX_DENY_REASONS} texts, each one line of at most {MAX_DENY_REASON} characters"
        raise DefinitionError(f"{label}: deny_reasons must be {requirement}")
    return tuple(reasons)


def check_credentials(
    credentials: Sequence[Credential], signature: ToolSignature, label: str
) -> tuple[Credential, ...]:
    """Return the credentials, each with a name of its own. The function must take the context that has them."""
    names = [credential.name for credential in credentials]
    if not all(isinstance(name, str) and NAME.fullmatch(name) for name in names):
        raise DefinitionError(f"{label}: each of its credentials has a name, such as crm")
    if len(set(names)) < len(names):
        raise DefinitionError(f"{label}: two of its credentials have one name")
    if credentials and not signature.wants_context:
        raise DefinitionError(
            f"{label}: its first parameter must be `context: ToolContext`, which has the credentials"
        )
    return tuple(credentials)


def check_sentence(sentence: str | None, name: str, signature: ToolSignature, label: str) -> str:
    """Return the sentence, by default one with all arguments."""
    arguments = list(signature.schema["properties"])
    if sentence is None:
        listed = ", ".join(f"{argument} {{{argument}}}" for argument in arguments)
        return f"Call {name} with {listed}" if listed else f"Call {name}"
    try:
        unknown = find_placeholders(sentence) - set(arguments)
    except ValueError as exc:
        raise DefinitionError(f"{label}: its sentence cannot be read: {exc}") from exc
    if unknown:
        raise DefinitionError(
            f"{label}: its sentence names {', '.join(sorted(unknown))}, which is not an argument"
        )
    return sentence


def refuse_duplicates(names: Sequence[str], label: str) -> None:
    """Raise DefinitionError if a name occurs twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DefinitionError(
            f"{label}: two of its tools or sub-agents are named {', '.join(twice)}"
        )
