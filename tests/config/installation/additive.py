"""Checks that a migration only adds, because processes of the version before still run."""

import re
from collections.abc import Iterator

from django.db.migrations import Migration, operations
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Field
from django.db.models.fields import NOT_PROVIDED

HARMLESS = (
    operations.CreateModel,
    operations.AddIndex,
    operations.RemoveIndex,
    operations.RenameIndex,
    operations.AlterModelOptions,
    operations.AlterModelManagers,
)
# SQL that removes a column or table that old code uses, or demands a value that old code does not write.
TAKES_AWAY = re.compile(
    r"\b(DROP\s+(TABLE|COLUMN|FUNCTION|VIEW|TYPE)|RENAME|SET\s+NOT\s+NULL"
    r"|ADD\s+COLUMN(?!\s+IF\s+NOT\s+EXISTS\s+\w+\s+\w+\s*$)"  # one that may be null is harmless
    r"|ALTER\s+COLUMN(?!\s+\S+\s+SET\s+COMPRESSION\b)|TRUNCATE|ADD\s+CONSTRAINT)\b",
    re.IGNORECASE,
)

BODY = re.compile(r"(CREATE\s+FUNCTION\b[^$]*)\$\$.*?\$\$", re.IGNORECASE | re.DOTALL)


def problems(migration: Migration, before: ProjectState) -> list[str]:
    """Describe the changes that break code of the version before. `before` is the state of that version."""
    found = []
    state = before.clone()
    for operation in migration.operations:
        found += [f"{migration}: {why}" for why in _of(operation, state, migration.app_label)]
        operation.state_forwards(migration.app_label, state)
    return found


def _of(operation: Operation, state: ProjectState, app: str) -> Iterator[str]:
    match operation:
        case operations.AddField():
            field = operation.field
            if not (field.null or field.db_default is not NOT_PROVIDED or field.many_to_many):
                yield f"{operation.name} has no value where old code does not write it"
        case operations.AlterField():
            old = state.models[app, operation.model_name.lower()].fields[operation.name]
            if _stored(old) != _stored(operation.field):
                yield f"{operation.name} changes in the database"
        case operations.RunSQL():
            for sql in _statements(operation.sql):
                if TAKES_AWAY.search(sql):
                    yield f"its SQL takes something away: {sql.strip()[:80]}"
        case operations.SeparateDatabaseAndState():
            for inner in operation.database_operations:
                yield from _of(inner, state, app)
        case operations.RunPython() if operation.code is operations.RunPython.noop:
            return
        case _ if isinstance(operation, HARMLESS):
            return
        case _:
            yield f"{operation.describe()} is nothing that old code was made for"


def _stored(field: "Field[object, object]") -> dict[str, object]:
    """Return the parts of a field that the database stores."""
    _, path, _, given = field.deconstruct()
    known = {key: value for key, value in given.items() if key not in ("choices", "default")}
    return {"path": path, **known}


def _statements(sql: object) -> list[str]:
    """Return the statements without `--` comments and without the bodies of functions."""
    many = sql if isinstance(sql, list | tuple) else [sql]
    texts = [one[0] if isinstance(one, list | tuple) else str(one) for one in many]
    return [BODY.sub(r"\1", re.sub(r"--[^\n]*", "", text)) for text in texts]
