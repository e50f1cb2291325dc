"""A process whose clock is an hour ahead still writes the time of the database."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import time_machine

from approvals import clock
from approvals.models import AuditEntry, Request
from runtime.models import Run
from runtime.store import pool
from runtime.store.tables import journal
from tests.support.office import Office


@pytest.fixture
def finished(office: Office) -> tuple[UUID, datetime, datetime]:
    """A run from start to end under the wrong clock, with the database time before and after."""
    before = clock.now()
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=1), tick=True):
        run = office.start()
        assert office.approve(run).status == "completed"
    return run, before, clock.now()


def test_events_bear_the_time_of_the_database(finished: tuple[UUID, datetime, datetime]) -> None:
    run, before, after = finished
    with pool.own() as own:
        times = [entry.at for _, entry in journal.history(own, run)]
    assert len(times) > 5
    assert [at for at in times if not before <= at <= after] == []


def test_the_audit_bears_the_time_of_the_database(
    finished: tuple[UUID, datetime, datetime],
) -> None:
    run, before, after = finished
    request, row = Request.objects.get(run=run), Run.objects.get(id=run)
    times = [entry.at for entry in AuditEntry.objects.filter(run=run)]
    times += [at for at in (request.created_at, request.decided_at, row.ended_at) if at is not None]
    assert len(times) == 5
    assert [at for at in times if not before <= at <= after] == []
