"""A migration only adds, because it runs while runs are suspended and processes of both versions live."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.core.management import CommandError, call_command
from django.db import connection, migrations, models
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState
from django.db.models import Field
from django.db.models.fields import NOT_PROVIDED
from pytest_django import Settings

APPS = ("runtime", "agents", "approvals")


def test_migrations_keep_everything_that_old_code_uses() -> None:
    loader = MigrationLoader(None)
    broken = [
        problem
        for app, name in later_migrations(loader)
        for problem in problems(
            loader.graph.nodes[app, name], loader.project_state((app, name), at_end=False)
        )
    ]
    assert broken == []


def later_migrations(loader: MigrationLoader) -> list[tuple[str, str]]:
    """Return the migrations after the first release."""
    return [key for key, node in loader.graph.nodes.items() if key[0] in APPS and not node.initial]


@pytest.mark.django_db
def test_the_models_are_those_that_the_migrations_make() -> None:
    call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)


# Each flow writes these tables, and every index of them costs some 75 bytes of WAL for each row version.
INDEXES = {
    "runtime_run": 8,  # one of them of active runs alone, one of runs in threads, one of suspected ones
    "runtime_gate": 2,
    "runtime_signal": 1,
    "runtime_usedapproval": 1,
    "runtime_journalentry": 2,  # one of them of unreadable entries, of which there are none
    "approvals_auditentry": 1,
    "approvals_audithead": 1,
    "approvals_approval": 20,  # seven of them only after the decision, one only at high risk
    "approvals_approvaloutcome": 3,
}


@pytest.mark.django_db
def test_hot_tables_have_no_other_index_and_no_foreign_key() -> None:
    with connection.cursor() as cursor:
        for table, indexes in INDEXES.items():
            cursor.execute("SELECT count(*) FROM pg_indexes WHERE tablename = %s", [table])
            assert cursor.fetchone() == (indexes,)
        cursor.execute(
            "SELECT conname FROM pg_constraint"
            " WHERE contype = 'f' AND conrelid = ANY (%s::text[]::regclass[])",
            [list(INDEXES)],
        )
        assert cursor.fetchall() == []
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'run_business_key'")
        (definition,) = cursor.fetchone()
    assert definition.endswith("(agent, requester, business_key) WHERE (business_key IS NOT NULL)")


@pytest.mark.parametrize(
    ("operation", "breaks"),
    [
        (migrations.RemoveField("run", "reason"), True),
        (migrations.AlterField("run", "reason", models.IntegerField(null=True)), True),
        (migrations.AddField("run", "more", models.TextField(default="x")), True),
        (migrations.RunSQL(["SELECT 1", ("alter table runtime_run drop column a", None)]), True),
        (migrations.RunPython(lambda apps, editor: None), True),
        (migrations.AddIndex("run", models.Index(fields=["reason"], name="run_reason")), True),
        (AddIndexConcurrently("run", models.Index(fields=["reason"], name="run_reason")), False),
        (migrations.AddField("run", "more", models.TextField(db_default="x")), False),
        (migrations.RunSQL("UPDATE runtime_run SET reason = '' -- never DROP COLUMN"), False),
    ],
    ids=lambda value: value.describe() if isinstance(value, Operation) else "",
)
def test_a_migration_that_breaks_old_code_is_reported(operation: Operation, breaks: bool) -> None:
    made = type("Made", (Migration,), {"operations": [operation]})("0099_test", "runtime")
    assert bool(problems(made, MigrationLoader(None).project_state())) is breaks


HARMLESS = (
    migrations.CreateModel,
    migrations.AddIndex,
    migrations.RemoveIndex,
    migrations.RenameIndex,
    migrations.AlterModelOptions,
    migrations.AlterModelManagers,
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
        if type(operation) is migrations.AddIndex and _table(operation, migration) in before.models:
            found.append(f"{migration}: {operation.describe()} blocks every process that writes")
        found += [f"{migration}: {why}" for why in _of(operation, state, migration.app_label)]
        operation.state_forwards(migration.app_label, state)
    return found


def _table(operation: migrations.AddIndex, migration: Migration) -> tuple[str, str]:
    return migration.app_label, operation.model_name_lower


def _of(operation: Operation, state: ProjectState, app: str) -> Iterator[str]:
    match operation:
        case migrations.AddField():
            field = operation.field
            if not (field.null or field.db_default is not NOT_PROVIDED or field.many_to_many):
                yield f"{operation.name} has no value where old code does not write it"
        case migrations.AlterField():
            old = state.models[app, operation.model_name.lower()].fields[operation.name]
            if _stored(old) != _stored(operation.field):
                yield f"{operation.name} changes in the database"
        case migrations.RunSQL():
            for sql in _statements(operation.sql):
                if TAKES_AWAY.search(sql):
                    yield f"its SQL takes something away: {sql.strip()[:80]}"
        case migrations.SeparateDatabaseAndState():
            for inner in operation.database_operations:
                yield from _of(inner, state, app)
        case migrations.RunPython() if operation.code is migrations.RunPython.noop:
            return
        case migrations.RunPython() if (
            getattr(operation.code, "__name__", "") == "build_partitioned_index"
        ):
            return  # which Django can build concurrently for a table without partitions only
        case _ if isinstance(operation, HARMLESS):
            return
        case _:
            yield f"{operation.describe()} is nothing that old code was made for"


def _stored(field: "Field[object, object]") -> dict[str, object]:
    _, path, _, given = field.deconstruct()
    known = {key: value for key, value in given.items() if key not in ("choices", "default")}
    return {"path": path, **known}


def _statements(sql: object) -> list[str]:
    """Return the statements without `--` comments and without the bodies of functions."""
    many = sql if isinstance(sql, list | tuple) else [sql]
    texts = [one[0] if isinstance(one, list | tuple) else str(one) for one in many]
    return [BODY.sub(r"\1", re.sub(r"--[^\n]*", "", text)) for text in texts]


# The command that applies them


@pytest.mark.django_db
def test_a_database_of_another_version_is_refused_unchanged(
    tmp_path: Path, settings: Settings
) -> None:
    settings.KEYS_DIR = tmp_path / "keys"
    rows = MigrationRecorder(connection).migration_qs
    last = rows.filter(app="approvals").latest("pk")
    rows.filter(pk=last.pk).update(name="0001_of_another_version")
    before = list(rows.values())
    with pytest.raises(CommandError) as caught:
        call_command("prepare", without_static=True)
    assert str(caught.value) == (
        "the database was made by another version (its migration approvals.0001_of_another_version is unknown here),"
        " and cannot be upgraded. Nothing was changed: keep using that version for it, or start with an empty database"
    )
    assert list(rows.values()) == before
    assert not settings.KEYS_DIR.exists()


@pytest.mark.django_db
def test_a_database_with_the_migrations_that_one_replaces_is_upgraded(
    tmp_path: Path, settings: Settings
) -> None:
    settings.KEYS_DIR = tmp_path / "keys"
    recorder = MigrationRecorder(connection)
    for app, number in (("runtime", 4), ("agents", 2), ("approvals", 6)):
        merged = MigrationLoader(None).get_migration(app, "0001_first_release")
        assert len(merged.replaces) == number
        recorder.record_unapplied(app, merged.name)
        for key in merged.replaces:
            recorder.record_applied(*key)
    call_command("prepare", without_static=True)
    assert recorder.migration_qs.filter(name="0001_first_release").count() == 3
