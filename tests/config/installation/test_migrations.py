"""A migration only adds, because it runs while runs are suspended and processes of both versions live."""

from typing import Any

import pytest
from django.db import connection, migrations, models
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from runtime.store.workers import BEAT
from tests.config.installation.additive import problems

APPS = ("runtime", "agents", "approvals")
# Migrations from before two versions could run side by side
FIRST = {"runtime": "0003_base", "agents": "0002_sentform", "approvals": "0004_lists"}
# Migrations that add a rule which the version before never breaks
KEPT_RULES = {
    ("approvals", "0012_risk"),
    ("runtime", "0026_fewer_indexes"),  # the same rule as before, by an index without the null keys
}


def _later(loader: MigrationLoader) -> list[tuple[str, str]]:
    """Yield our migrations after the first ones, in order."""
    plan = [
        key
        for app in APPS
        for key in loader.graph.forwards_plan(loader.graph.leaf_nodes(app)[0])
        if key[0] in APPS and key[1] > FIRST[key[0]]
    ]
    return list(dict.fromkeys(plan))


def test_migrations_keep_everything_that_old_code_uses() -> None:
    loader = MigrationLoader(None)
    found = _later(loader)
    assert ("agents", "0003_agentversion") in found
    said = [
        why
        for key in found
        if key not in KEPT_RULES
        for why in problems(loader.graph.nodes[key], loader.project_state(key, at_end=False))
    ]
    assert said == []


# Long columns, and the months of the journal
COMPRESSED = r"^runtime_(journalentry(_default|_\d{4}_\d{2})?|continuation|base|content)$"


@pytest.mark.django_db
def test_long_columns_are_compressed_by_lz4_if_possible() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
        )
        can = cursor.fetchone() == (True,)
        cursor.execute(
            "SELECT c.relname, a.attcompression FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " WHERE c.relname ~ %s AND a.attname = 'body' AND c.relkind IN ('r', 'p')",
            [COMPRESSED],
        )
        found = {name: str(how).strip("\0") for name, how in cursor.fetchall()}
    assert {"runtime_journalentry", "runtime_journalentry_default", "runtime_content"} <= set(found)
    assert len(found) >= 8  # with three months of the journal
    assert set(found.values()) == ({"l"} if can else {""})


# Each flow writes these tables, and every index of them costs some 75 bytes of WAL for each row version.
INDEXES = {
    "runtime_run": {
        "runtime_run_pkey",
        "run_due",
        "run_requester",
        "run_business_key",
        "run_to_remove",
    },
    "runtime_gate": {"runtime_gate_pkey", "runtime_gate_run_id_03146e14"},
    "runtime_signal": {"runtime_signal_run_id_54db33c5"},
    "runtime_spent": {"runtime_spent_pkey"},
    "runtime_journalentry": {"runtime_journalentry_pkey"},
    "approvals_auditentry": {"audit_order"},
    "approvals_request": {
        "approvals_request_pkey",
        "approvals_request_gate_key",
        "approvals_request_run_id_6818cd7b",
        "request_order",
        "request_pending",
        "request_deadline",
        "request_decided",
        "request_requester",
        "request_excluded_others",
        "request_doubt",
        "request_similar",
    },
}


@pytest.mark.django_db
@pytest.mark.parametrize("table", INDEXES)
def test_hot_tables_have_no_other_index_and_no_foreign_key(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname FROM pg_indexes WHERE tablename = %s", [table])
        assert {name for (name,) in cursor.fetchall()} == INDEXES[table]
        cursor.execute(
            "SELECT conname FROM pg_constraint WHERE contype = 'f' AND conrelid = %s::regclass",
            [table],
        )
        assert cursor.fetchall() == []


@pytest.mark.django_db
def test_runs_without_a_business_key_are_in_no_index_of_it() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'run_business_key'")
        (definition,) = cursor.fetchone()
    assert definition.endswith("(agent, requester, business_key) WHERE (business_key IS NOT NULL)")


@pytest.mark.django_db
def test_the_version_before_starts_runs_with_a_business_key_once() -> None:
    with connection.cursor() as cursor:
        for written in (1, 0):
            cursor.execute(OLD_START)
            assert cursor.rowcount == written


OLD_START = """
    INSERT INTO runtime_run (id, agent, requester, business_key, input, status)
    VALUES (gen_random_uuid(), 'clerk', 'ada', 'one', '{}', 'queued')
    ON CONFLICT ON CONSTRAINT run_business_key DO NOTHING
"""


def _state() -> ProjectState:
    state = ProjectState()
    fields: list[tuple[str, models.Field[Any, Any]]] = [
        ("id", models.BigAutoField(primary_key=True)),
        ("note", models.TextField(null=True)),
    ]
    migrations.CreateModel("Thing", fields).state_forwards("agents", state)
    return state


def _migration(operation: Operation) -> Migration:
    class Made(Migration):
        operations = [operation]

    return Made("0099_test", "agents")


@pytest.mark.parametrize(
    "operation",
    [
        migrations.RemoveField("thing", "note"),
        migrations.RenameField("thing", "note", "remark"),
        migrations.RenameModel("Thing", "Other"),
        migrations.DeleteModel("Thing"),
        migrations.AlterField("thing", "note", models.TextField(default="")),
        migrations.AlterField("thing", "note", models.IntegerField(null=True)),
        migrations.AddField("thing", "more", models.TextField(default="x")),
        migrations.AddConstraint(
            "thing", models.UniqueConstraint(fields=["note"], name="thing_note")
        ),
        migrations.RunSQL("ALTER TABLE agents_thing ALTER COLUMN note SET NOT NULL"),
        migrations.RunSQL(["SELECT 1", ("alter table agents_thing drop column note", None)]),
        migrations.RunPython(lambda apps, editor: None),
    ],
    ids=lambda operation: operation.describe(),
)
def test_a_migration_that_breaks_old_code_is_reported(operation: Operation) -> None:
    assert problems(_migration(operation), _state())


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("thing", "more", models.TextField(null=True)),
        migrations.AddField("thing", "more", models.TextField(db_default="x")),
        migrations.AddIndex("thing", models.Index(fields=["note"], name="thing_note")),
        migrations.AlterField("thing", "note", models.TextField(null=True, choices=[("a", "a")])),
        migrations.RunSQL("UPDATE agents_thing SET note = '' -- never DROP COLUMN"),
    ],
    ids=lambda operation: operation.describe(),
)
def test_a_migration_that_only_adds_is_accepted(operation: Operation) -> None:
    assert problems(_migration(operation), _state()) == []


OLD_BEAT = """
    INSERT INTO runtime_worker (id, host, process) VALUES (gen_random_uuid(), 'here', 1)
    ON CONFLICT (id) DO UPDATE SET beat_at = clock_timestamp()
"""


@pytest.mark.django_db
def test_a_worker_of_the_version_before_beats_on() -> None:
    assert "agents" in BEAT
    with connection.cursor() as cursor:
        cursor.execute(OLD_BEAT)
        cursor.execute("SELECT agents FROM runtime_worker")
        assert cursor.fetchall() == [("{}",)]
