"""A late page omits optional parts or is aborted; and a process with a wrong clock writes the database's time."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import time_machine
from django.test import Client

from approvals import clock
from approvals.models import Approval, AuditEntry
from runtime.models import Run
from runtime.reads import time_limits
from runtime.reads.transcript import read_transcript
from runtime.store import pool
from runtime.store.tables import journal
from runtime.web.display import NOT_SEARCHED, escape_visible, lookalikes
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import shows


def test_a_late_page_names_its_omitted_parts(
    bea: Client, office: Office, suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "SOFT_SECONDS", 0.0)
    left_out = "Left out: this page took too long."
    approval = office.request(suspended)
    shows(bea, approval, left_out, "Approve", hides=["First of its kind: "])
    shows(bea, "/inbox/", "Some rows were not checked for unusual values")
    office.approve(suspended)
    shows(bea, "/decisions/", "Results and errors are not shown", ">Done<", hides=["raw brief"])


def test_a_late_page_searches_short_texts_for_look_alikes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limits, "SOFT_SECONDS", 0.0)
    with time_limits.limit_page_time(bounded=True):
        (note,) = lookalikes("p\u0430ypal")
        assert note != NOT_SEARCHED
        assert lookalikes("paypal") == []
        assert lookalikes("p\u0430ypal" * 60, "") == [NOT_SEARCHED]


def test_a_page_that_takes_too_long_is_given_up(
    bea: Client, bea_api: Caller, office: Office, suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python is bounded, too. Forms and the API have no such limit."""
    monkeypatch.setattr(time_limits, "HARD_SECONDS", 0.0)
    bea.raise_request_exception = False
    approval = office.request(suspended)
    for place in ("/inbox/", approval, suspended, f"/runs/{suspended}/at/3/"):
        shows(bea, place, "This page takes too long", status=503)
    assert bea_api.get(f"/approvals/{approval.id}").status_code == 200
    body = {"digest": approval.approval_digest}
    assert bea.post(f"/a/{approval.id}/approve/", body).status_code == 302
    with time_limits.limit_page_time(bounded=True), pytest.raises(time_limits.TooLong):
        read_transcript(suspended)
    with time_limits.limit_page_time(bounded=True), pytest.raises(time_limits.TooLong):
        escape_visible("x")


def test_events_and_audit_bear_the_time_of_the_database(office: Office) -> None:
    """Also those of a process whose clock is an hour ahead."""
    before = clock.read_time()
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=1), tick=True):
        run = office.start()
        assert office.approve(run).status == "completed"
    after = clock.read_time()
    with pool.open_own() as own:
        times = [entry.at for _, entry in journal.read_history(own, run).entries]
    assert len(times) > 5
    approval, row = Approval.objects.get(run=run), Run.objects.get(id=run)
    audited = [entry.at for entry in AuditEntry.objects.filter(run=run)]
    audited += [at for at in (approval.created_at, approval.decided_at, row.ended_at) if at]
    assert len(audited) == 5
    assert [at for at in times + audited if not before <= at <= after] == []
