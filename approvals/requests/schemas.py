"""Tool schemas, each stored once: a request refers to that of its tool by its digest.

The digest is part of the action digest, so a reference binds the schema as the text does.
"""

import json
from collections.abc import Sequence
from functools import lru_cache

from approvals.models import ToolSchema
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import sha256_of
from runtime.ports.approvals import NotConfirmed, StatementPart

_REFERENCE = "sha256:"  # no JSON text begins with it
RECENT = 256  # schemas that a process remembers

# `ORDER BY`, so that two steps that store the same new schemas do not wait for each other.
_STORE = """
    INSERT INTO approvals_toolschema (digest, body)
    SELECT s.digest, s.body FROM run, json_to_recordset(%(schemas)s::json) AS s(digest text, body text)
    ORDER BY s.digest ON CONFLICT (digest) DO NOTHING
"""


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
