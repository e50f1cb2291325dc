"""Checks the result that a person reports for a call in doubt or gives instead of a call.

It is small JSON of the tool's declared type.
"""

import json
from typing import Any, Final

from approvals.models import Approval
from approvals.requests import schemas
from runtime.core.values import json_schema
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json
from runtime.core.values.limits import MAX_REPORTED, size_of
from runtime.errors import InvalidInput
from runtime.keyring import sealing

# The value of `result` when none was sent: null is a result.
ABSENT: Final = object()


def schema_of(approval: Approval) -> dict[str, Any] | None:
    """Return the schema of the tool's result, None if it declares none."""
    if approval.result_schema is None:
        return None
    found: dict[str, Any] = json.loads(schemas.text_of(approval.result_schema))
    return found


def is_text(schema: Any) -> bool:
    """Tell whether a result of this schema is text and nothing else."""
    return isinstance(schema, dict) and schema.get("type") == "string"


def read(text: str, schema: Any) -> Any:
    """Read a result typed into the form: as text if the schema says text, else as JSON.

    Without a schema, a value that does not begin like JSON is text. Raise InvalidInput.
    """
    if is_text(schema):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        if schema is None and not text.lstrip().startswith(("{", "[", '"')):
            return text
        where = f" (line {exc.lineno})" if isinstance(exc, json.JSONDecodeError) else ""
        raise InvalidInput("result", f"is not JSON{where}") from exc


def check(result: Any, schema: dict[str, Any] | None) -> None:
    """Raise InvalidInput, naming `result` or the place in it, unless the call could return this."""
    try:
        require_json(result, "result")
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    size = size_of(result)
    if size > MAX_REPORTED:
        raise InvalidInput("result", f"is {size} bytes of JSON, at most {MAX_REPORTED} are allowed")
    if sealing.looks_sealed(result):
        raise InvalidInput(
            "result", "must not hold a sealed secret: only what tools return is sealed"
        )
    for problem in json_schema.problems(schema or {}, result, "result"):
        raise InvalidInput(problem.field, problem.detail)
