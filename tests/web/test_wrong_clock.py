"""A process whose clock is an hour ahead still writes the time of the database."""

from datetime import UTC, datetime, timedelta

import time_machine

from approvals import clock
from approvals.models import AuditEntry, Request
from runtime.models import Run
from runtime.store import pool
from runtime.store.tables import journal
from tests.support.office import Office


def test_events_and_audit_bear_the_time_of_the_database(office: Office) -> None:
    before = clock.now()
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=1), tick=True):
        run = office.start()
        assert office.approve(run).status == "completed"
    after = clock.now()
    with pool.own() as own:
        times = [entry.at for _, entry in journal.history(own, run)]
    assert len(times) > 5
    request, row = Request.objects.get(run=run), Run.objects.get(id=run)
    audited = [entry.at for entry in AuditEntry.objects.filter(run=run)]
    audited += [at for at in (request.created_at, request.decided_at, row.ended_at) if at]
    assert len(audited) == 5
    assert [at for at in times + audited if not before <= at <= after] == []
