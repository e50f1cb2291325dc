"""The health endpoints of the process and of the installation."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import OperationalError, connection
from django.db.models import DateTimeField, Func
from django.db.models.functions import Now
from django.test import Client
from pytest_django import Settings

from runtime.models import SweeperLoop, WorkerProcess
from runtime.reads import workers
from runtime.reads.workers import LATE_SECONDS


@pytest.mark.django_db
def test_ready_while_a_worker_beats() -> None:
    worker = WorkerProcess.objects.create(id=uuid4(), host="here", process=1)
    for age, alive in ((0, True), (11, False)):
        WorkerProcess.objects.filter(id=worker.id).update(beat_at=Now() - timedelta(seconds=age))
        answer = Client().get("/readyz")
        others = dict.fromkeys(("database", "migrations", "partitions"), True)
        assert answer.json()["checks"] == {**others, "worker": alive}
        assert answer.status_code == (200 if alive else 503)
    began_at = Func(function="pg_postmaster_start_time", output_field=DateTimeField())
    for later, alive in ((-1, False), (0, True)):  # a beat from before Postgres started
        WorkerProcess.objects.filter(id=worker.id).update(
            beat_at=began_at + timedelta(seconds=later)
        )
        assert workers.has_live_worker(within=timedelta(days=1)) is alive
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'approvals'")
    assert Client().get("/readyz").json()["checks"]["migrations"] is False


@pytest.mark.django_db
def test_it_warns_of_a_superuser_and_of_no_ledger(settings: Settings, tmp_path: Path) -> None:
    SweeperLoop.objects.bulk_create(SweeperLoop(name=name, done_at=Now()) for name in LATE_SECONDS)
    settings.SIGNOFF_LEDGER = None
    assert Client().get("/readyz").json()["warnings"] == ["superuser", "no_ledger"]
    settings.SIGNOFF_LEDGER = tmp_path / "ledger"
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE plain; GRANT pg_read_all_data TO plain; SET LOCAL ROLE plain")
    assert Client().get("/readyz").json()["warnings"] == []


@pytest.mark.django_db
def test_not_ready_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> None:
        raise OperationalError("the database is gone")

    monkeypatch.setattr(connection, "cursor", unreachable)
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert not any(answer.json()["checks"].values())
    assert Client().get("/healthz").json() == {"status": "ok"}


@pytest.mark.django_db
def test_a_process_for_suspected_runs_is_no_live_worker() -> None:
    """Each installation has one, so an alarm that counts it would never ring."""
    for isolated, live in ((True, {}), (False, {"a": {"f"}})):
        WorkerProcess.objects.create(
            id=uuid4(), host="here", process=1, isolated=isolated, agents={"a": "f"}
        )
        assert workers.read_live_versions(workers.ALIVE) == live
        assert workers.count_live_workers(workers.ALIVE) == len(live)
