"""A migration only adds, because it runs while runs are suspended and processes of both versions live."""

import re
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Field
from django.db.models.fields import NOT_PROVIDED

from runtime.store.workers import BEAT

APPS = ("runtime", "agents", "approvals")
# Migrations from before two versions could run side by side
FIRST = {"runtime": "0003_base", "agents": "0002_sentform", "approvals": "0004_lists"}
# Migrations that add a rule which the version before never breaks
KEPT_RULES = {
    ("approvals", "0012_risk"),
    ("runtime", "0026_fewer_indexes"),  # the same rule as before, by an index without the null keys
}
# Migrations that remove what no release used
REMOVED = {
    ("approvals", "0048_remove_older_columns"),
    ("runtime", "0051_remove_older_columns"),
}
# Migrations that make an index of an existing table while nothing else can write to it
BLOCKING = {
    ("approvals", "0008_doubts"),
    ("approvals", "0010_origin"),
    ("runtime", "0008_retention"),
    ("runtime", "0022_loss_worker"),
    ("runtime", "0031_schedule_of_run"),
}
# Migrations in Python: each fills a column that the version before does not use
FILLS = {("approvals", "0046_fill_readers")}


def test_migrations_keep_everything_that_old_code_uses() -> None:
    loader = MigrationLoader(None)
    found = dict.fromkeys(
        key
        for app in APPS
        for key in loader.graph.forwards_plan(loader.graph.leaf_nodes(app)[0])
        if key[0] in APPS and key[1] > FIRST[key[0]]
    )
    assert ("agents", "0003_agentversion") in found
    said = [
        why
        for key in found
        if key not in KEPT_RULES | REMOVED | FILLS
        for why in problems(loader.graph.nodes[key], loader.project_state(key, at_end=False))
    ]
    assert said == []


def test_an_index_of_an_existing_table_blocks_no_process() -> None:
    loader = MigrationLoader(None)
    blocking = {
        key
        for key, migration in loader.graph.nodes.items()
        if key[0] in APPS and key[1] > FIRST[key[0]] and key not in BLOCKING
        for operation in migration.operations
        if type(operation) is migrations.AddIndex
        and (key[0], operation.model_name_lower) in loader.project_state(key, at_end=False).models
    }
    assert blocking == set()


@pytest.mark.parametrize("key", FILLS, ids=str)
def test_a_migration_that_fills_a_column_locks_no_table(key: tuple[str, str]) -> None:
    """In one transaction with the new column, no process could read the table before its last row is filled."""
    migration = MigrationLoader(None).graph.nodes[key]
    assert [type(operation) for operation in migration.operations] == [migrations.RunPython]
    assert not migration.atomic


@pytest.mark.django_db
def test_the_models_are_those_that_the_migrations_make() -> None:
    call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)


# Each flow writes these tables, and every index of them costs some 75 bytes of WAL for each row version.
INDEXES = {
    "runtime_run": 8,  # one of them of active runs alone, one of runs in threads, one of suspected ones
    "runtime_gate": 2,
    "runtime_signal": 1,
    "runtime_usedapproval": 1,
    "runtime_journalentry": 1,
    "approvals_auditentry": 1,
    "approvals_audithead": 1,
    "approvals_approval": 22,  # seven of them only after the decision, one only at high risk
    "approvals_approvaloutcome": 3,
}


OLD_START = """
    INSERT INTO runtime_run (id, agent, requester, business_key, input, status)
    VALUES (gen_random_uuid(), 'clerk', 'ada', 'one', '{}', 'queued')
    ON CONFLICT ON CONSTRAINT run_business_key DO NOTHING
"""


OLD_BEAT = """
    INSERT INTO runtime_workerprocess (id, host, process) VALUES (gen_random_uuid(), 'here', 1)
    ON CONFLICT (id) DO UPDATE SET beat_at = clock_timestamp()
"""


@pytest.mark.django_db
def test_the_version_before_starts_a_run_once_and_its_workers_beat() -> None:
    assert "agents" in BEAT
    with connection.cursor() as cursor:
        for written in (1, 0):
            cursor.execute(OLD_START)
            assert cursor.rowcount == written
        cursor.execute(OLD_BEAT)
        cursor.execute("SELECT agents FROM runtime_workerprocess")
        assert cursor.fetchall() == [("{}",)]


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
        found += [f"{migration}: {why}" for why in _of(operation, state, migration.app_label)]
        operation.state_forwards(migration.app_label, state)
    return found


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
