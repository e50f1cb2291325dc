"""Tool schemas, each stored once: a request refers to that of its tool by its digest.

The digest is part of the action digest, so a reference binds the schema as the text does.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from approvals.models import Approval, ToolSchema
from runtime.core.values import json_schema
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json, sha256_of
from runtime.core.values.limits import MAX_REPORTED, size_of
from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.ports.approvals import NotConfirmed, StatementPart

_REFERENCE = "sha256:"  # no JSON text begins with it
RECENT = 256  # schemas that a process remembers
# `ORDER BY`, so that two steps that store the same new schemas do not wait for each other.
_STORE = """
    INSERT INTO approvals_toolschema (digest, body)
    SELECT s.digest, s.body FROM run, json_to_recordset(%(schemas)s::json) AS s(digest text, body text)
    ORDER BY s.digest ON CONFLICT (digest) DO NOTHING
"""
# The value of `result` when none was sent: null is a result.
ABSENT: Final = object()


def stored(texts: Sequence[str]) -> StatementPart:
    """Return the part of a step that stores those of these schemas that are new."""
    rows = [{"digest": digest_of(text), "body": text} for text in texts]
    return StatementPart(name="schemas", sql=_STORE, parameters={"schemas": json.dumps(rows)})


@lru_cache(RECENT)
def digest_of(schema: str) -> str:
    """Return the digest of a schema, given as text. Raises ValueError, RecursionError or NotJson."""
    return sha256_of(json.loads(schema))


def text_of(schema: str) -> str:
    """Return the text of a schema, given as text or by reference. Raises NotConfirmed if it is not stored."""
    return _read(schema) if schema.startswith(_REFERENCE) else schema


@lru_cache(RECENT)
def _read(digest: str) -> str:
    body = ToolSchema.objects.filter(digest=digest).values_list("body", flat=True).first()
    try:
        if body is not None and digest_of(body) == digest:
            return body
    except (ValueError, RecursionError, NotJson):
        pass
    raise NotConfirmed("the schema of the tool is missing, or not the one that was stored")


def schema_of(approval: Approval) -> dict[str, Any] | None:
    """Return the schema of the tool's result, None if it declares none."""
    if approval.result_schema is None:
        return None
    schema: dict[str, Any] = json.loads(text_of(approval.result_schema))
    return schema


def takes_text(schema: Any) -> bool:
    """Tell whether a result of this schema is text and nothing else."""
    return isinstance(schema, dict) and schema.get("type") == "string"


def read_result(text: str, schema: Any) -> Any:
    """Read a result typed into the form: as text if the schema says text, else as JSON.

    Without a schema, a value that does not begin like JSON is text. Raise InvalidInput.
    """
    if takes_text(schema):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        if schema is None and not text.lstrip().startswith(("{", "[", '"')):
            return text
        position = f" (line {exc.lineno})" if isinstance(exc, json.JSONDecodeError) else ""
        raise InvalidInput("result", f"is not JSON{position}") from exc


def check_result(result: Any, schema: dict[str, Any] | None) -> None:
    """Raise InvalidInput, naming `result` or the place in it, unless the call could return this."""
    try:
        require_json(result, "result")
    except NotJson as exc:
        raise InvalidInput(exc.field, exc.detail) from exc
    size = size_of(result)
    if size > MAX_REPORTED:
        raise InvalidInput("result", f"is {size} bytes of JSON, at most {MAX_REPORTED} are allowed")
    if sealing.looks_sealed(result):
        raise InvalidInput(
            "result", "must not hold a sealed secret: only what tools return is sealed"
        )
    for problem in json_schema.problems(schema or {}, result, "result"):
        raise InvalidInput(problem.field, problem.detail)
