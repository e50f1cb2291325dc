"""The result that a person reports for a call in doubt: JSON, small, and of the tool's declared type."""

import json
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from approvals.errors import Invalid
from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.core.limits import MAX_REPORTED, size_of
from runtime.keyring import sealing


def is_text(schema: Any) -> bool:
    """Tell whether a result of this schema is text and nothing else."""
    return isinstance(schema, dict) and schema.get("type") == "string"


def read(text: str, schema: Any) -> Any:
    """Read a result typed into the form: as text if the schema says text, else as JSON.

    Without a schema, a value that does not begin like JSON is text. Raise Invalid.
    """
    if is_text(schema):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        if schema is None and not text.lstrip().startswith(("{", "[", '"')):
            return text
        where = f" (line {exc.lineno})" if isinstance(exc, json.JSONDecodeError) else ""
        raise Invalid("result", f"is not JSON{where}") from exc


def check(result: Any, schema: dict[str, Any] | None) -> None:
    """Raise Invalid, naming `result` or the place in it, unless the call may have returned this."""
    try:
        require_json(result, "result")
    except NotJson as exc:
        raise Invalid(exc.where, exc.why) from exc
    size = size_of(result)
    if size > MAX_REPORTED:
        raise Invalid("result", f"is {size} bytes of JSON, at most {MAX_REPORTED} are allowed")
    if sealing.looks_sealed(result):
        raise Invalid("result", "must not hold a sealed secret: only what tools return is sealed")
    if schema is None:
        return
    # A registry of its own, or a reference to an address would be fetched from there.
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        errors = sorted(validator.iter_errors(result), key=lambda error: len(error.absolute_path))
    except Unresolvable as exc:
        raise Invalid("result", f"cannot be checked: {exc}") from exc
    if errors:
        raise Invalid(_place(errors[0]), _limit(errors[0]))


def _place(error: ValidationError) -> str:
    path = ["result", *(str(step) for step in error.absolute_path)]
    if error.validator == "required":
        given: Any = error.instance
        rule: Any = error.validator_value
        path.append(next(name for name in rule if name not in given))
    return ".".join(path)


def _limit(error: ValidationError) -> str:
    """The limit, not the value: a value may be long or secret."""
    match error.validator:
        case "required":
            return "is missing"
        case "type":
            return f"must be of type {error.validator_value}"
        case other:
            return f"breaks the limit {other}: {json.dumps(error.validator_value)}"
