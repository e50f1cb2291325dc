"""Checks inputs and typed results against a JSON Schema, and names the field and the limit of each problem."""

import inspect
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from agents.sdk.conditions import describe_exception, run_code
from agents.sdk.spec import FINAL_ANSWER, AgentSpec
from runtime.core.run.events import Proposal
from runtime.core.values import json_schema
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import measure_size, require_json
from runtime.core.values.limits import MAX_INPUT, MAX_INSTRUCTIONS
from runtime.errors import InvalidInput

DESCRIPTION = (
    "Give the final answer, once everything else is done. Call it alone: it ends the work."
)
NO_JSON = f"give the final answer by calling {FINAL_ANSWER} with arguments of its schema"
NOT_ALONE = f"{FINAL_ANSWER} is called once and alone, when every other call has its result"


def check(schema: dict[str, Any] | str, value: Any, *, root: str = "input") -> None:
    """Raise InvalidInput unless `value` is JSON, at most 64 KB of it, and fits `schema`.

    The schema may be given as its text. `root` is the first word of the dotted path that names the field.
    """
    raise_all(list_problems(schema, value, root=root))


def raise_all(errors: Sequence[InvalidInput]) -> None:
    """Raise the first of these problems, if any, with the others attached."""
    if errors:
        first, *remaining = errors
        raise InvalidInput(first.field, first.detail, remaining)


def read(model: type[BaseModel], value: Any, *, root: str = "input") -> Any:
    """Read JSON with a Pydantic model, defaults and validators included, and return it as JSON.

    Raise InvalidInput with all errors.
    """
    try:
        parsed = run_code(model.model_validate_json, json.dumps(value))
        as_json = run_code(parsed.model_dump, mode="json", by_alias=True)
        require_json(as_json, root)
    except PydanticError as exc:
        raise_all(
            [
                InvalidInput(".".join([root, *map(str, error["loc"])]), error["msg"])
                for error in exc.errors()
            ]
        )
    except NotJson as exc:
        raise InvalidInput(exc.field, exc.detail) from exc
    except Exception as exc:  # of a validator
        reason = f"its model {model.__name__} failed: {describe_exception(exc)}"
        raise InvalidInput(root, reason) from exc
    return as_json


def find_json_problem(text: str, *, root: str) -> str:
    """Say which field of a JSON text cannot be stored, and why. Empty if all can, or if the text is not JSON."""
    try:
        require_json(json.loads(text), root)
    except NotJson as exc:
        return str(exc)
    except (ValueError, RecursionError):
        pass
    return ""


def make_instructions(make: Callable[[Any], str], model: type[BaseModel], input: Any) -> str:
    """Call an agent's function of instructions with an input that `read` returned. Raise InvalidInput."""
    try:
        text = run_code(make, run_code(model.model_validate_json, json.dumps(input)))
        require_json(text, "instructions")
    except NotJson as exc:
        raise InvalidInput("instructions", exc.detail) from exc
    except Exception as exc:  # of the function
        reason = f"their function {make.__name__} failed: {describe_exception(exc)}"
        raise InvalidInput("instructions", reason) from exc
    if not isinstance(text, str) or not 0 < len(text.strip()) <= MAX_INSTRUCTIONS:
        requirement = f"a text of 1 to {MAX_INSTRUCTIONS} characters"
        raise InvalidInput(
            "instructions", f"their function {make.__name__} must return {requirement}"
        )
    return inspect.cleandoc(text)


def list_problems(
    schema: dict[str, Any] | str, value: Any, *, root: str = "input"
) -> list[InvalidInput]:
    """List the problems, at most one for each field, the shallowest first."""
    try:
        require_json(value, root)
    except NotJson as exc:
        return [InvalidInput(exc.field, exc.detail)]
    size = measure_size(value)
    if size > MAX_INPUT:
        detail = f"is {size} bytes of JSON, at most {MAX_INPUT} are allowed"
        return [InvalidInput(root, detail)]
    return [
        InvalidInput(problem.field, problem.detail)
        for problem in json_schema.list_problems(schema, value, root)
    ]


def read_result(
    agent: AgentSpec, calls: Sequence[Proposal], text: str
) -> tuple[dict[str, Any] | None, tuple[Proposal, ...]]:
    """Return the typed result of a reply as JSON, or None and the calls to make.

    A result that does not fit stays among the calls, where the engine refuses it and tells the model why. The
    model tries again.
    """
    if agent.output is None:
        return None, tuple(calls)
    if not calls:  # the model wrote a text instead of calling the tool
        args: Any = text
        with suppress(ValueError, RecursionError):
            args = json.loads(text)
        calls = (Proposal(tool=FINAL_ANSWER, args=args),)
    if len(calls) == 1 and calls[0].tool == FINAL_ANSWER:
        try:
            result: dict[str, Any] = read(agent.output, calls[0].args, root=FINAL_ANSWER)
        except InvalidInput:
            return None, tuple(calls)
        return result, ()
    return None, tuple(calls)


def explain_result(agent: AgentSpec, args: Any) -> str:
    """Say why these arguments are not accepted as the result, with all errors."""
    assert agent.output is not None  # only such agents have the tool
    if isinstance(args, str):
        return find_json_problem(args, root=FINAL_ANSWER) or NO_JSON
    try:
        read(agent.output, args, root=FINAL_ANSWER)
    except InvalidInput as exc:
        return exc.all_of_it
    return NOT_ALONE
