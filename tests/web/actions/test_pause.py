"""Pausing and resuming a run, over the API and on its page."""

from uuid import UUID

from django.test import Client

from approvals import audit
from approvals.models import AuditEntry
from runtime.models import Run, Signal
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import has, shows, text_of


def test_a_run_is_paused_and_resumed_over_the_api(
    ada_api: Caller, admin_api: Caller, office: Office, suspended: UUID
) -> None:
    """A second pause and a second resume change nothing."""
    path = f"/runs/{suspended}"
    for caller in (ada_api, admin_api):
        assert caller.post(f"{path}/pause", {"reason": "Wait for HR."}).status_code == 200
    assert Signal.objects.filter(run=suspended).count() == 1
    assert office.advance(suspended).status == "paused"
    mailbox = Run.objects.get(id=suspended).mailbox
    assert ada_api.post(f"{path}/pause").json()["status"] == "paused"
    assert Run.objects.get(id=suspended).mailbox == mailbox
    for _ in range(2):
        assert ada_api.post(f"{path}/resume").status_code == 200
    office.advance(suspended)
    assert ada_api.post(f"{path}/resume").json()["status"] == "suspended"
    rows = AuditEntry.objects.filter(run=suspended, subject=f"run {suspended}").order_by("seq")
    assert [(row.act, row.actor) for row in rows] == [("paused", "ada"), ("resumed", "ada")]
    assert "Wait for HR." in rows[0].detail
    audit.verify(suspended)


def test_a_cancelling_or_quarantined_run_cannot_be_paused(ada_api: Caller, suspended: UUID) -> None:
    ada_api.post(f"/runs/{suspended}/cancel", {"reason": "Not needed."})
    for status in ("cancelling", "quarantined"):
        Run.objects.filter(id=suspended).update(status=status)
        answer = ada_api.post(f"/runs/{suspended}/pause")
        assert (answer.status_code, answer.json()["status"]) == (409, status)


def test_the_page_has_one_button_for_pause_or_resume(
    ada: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/"
    pause, resume = f"{path}pause/", f"{path}resume/"
    shows(ada, suspended, pause)
    shows(bea, suspended, hides=["pause/"])
    answer = ada.post(pause)
    assert (answer.status_code, answer["Location"]) == (302, path)
    shows(ada, suspended, "Being paused", resume, hides=[pause])
    office.advance(suspended)
    shows(ada, suspended, "Paused by <bdi>ada</bdi>", resume)
    shows(ada, "/runs/?tab=working", str(suspended))
    ada.post(resume)
    shows(ada, suspended, "Resume requested", pause)
    office.advance(suspended)
    shows(ada, suspended, "paused by", hides=["Paused by"])
    shows(ada, f"{path}?tab=transcript", "Resumed the run")


def test_a_run_that_was_over_first_says_so_on_its_page(
    ada: Client, office: Office, suspended: UUID
) -> None:
    office.cancel(suspended, "Not needed.")
    shows(ada, suspended, hides=["pause/"])
    page = text_of(ada.post(f"/runs/{suspended}/pause/", follow=True))
    has(page, "Nothing was changed: the run is cancelled already.")
