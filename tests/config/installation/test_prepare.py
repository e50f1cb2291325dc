"""`prepare` refuses a database that it cannot upgrade, before it changes anything."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings


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
    for app, number in (("runtime", 4), ("agents", 2), ("approvals", 4)):
        merged = MigrationLoader(None).get_migration(app, "0001_first_release")
        assert len(merged.replaces) == number
        recorder.record_unapplied(app, merged.name)
        for key in merged.replaces:
            recorder.record_applied(*key)
    call_command("prepare", without_static=True)
    assert recorder.migration_qs.filter(name="0001_first_release").count() == 3
