"""Pausing and resuming a run, over the API and on its page."""

from uuid import UUID

from django.test import Client

from approvals import audit
from approvals.models import AuditEntry
from runtime.models import Run, Signal
from tests.support.api_client import Caller
from tests.support.office import Office


def test_a_run_is_paused_and_resumed_over_the_api(
    ada_api: Caller, office: Office, suspended: UUID
) -> None:
    answer = ada_api.post(f"/runs/{suspended}/pause", {"reason": "Wait for HR."})
    assert answer.status_code == 200
    assert office.advance(suspended).status == "paused"
    assert ada_api.get(f"/runs/{suspended}").json()["status"] == "paused"
    assert office.approve(suspended).status == "paused"
    assert "set_privileges" not in [call.tool for call in office.effects.calls]
    assert ada_api.post(f"/runs/{suspended}/resume").status_code == 200
    assert office.advance(suspended).status == "completed"
    assert "set_privileges" in [call.tool for call in office.effects.calls]
    rows = AuditEntry.objects.filter(run=suspended, subject=f"run {suspended}").order_by("seq")
    assert [(row.act, row.actor) for row in rows] == [("paused", "ada"), ("resumed", "ada")]
    assert "Wait for HR." in rows[0].detail
    audit.verify(suspended)


def test_a_second_pause_and_a_second_resume_change_nothing(
    ada_api: Caller, admin_api: Caller, office: Office, suspended: UUID
) -> None:
    for caller in (ada_api, admin_api):
        assert caller.post(f"/runs/{suspended}/pause").status_code == 200
    assert Signal.objects.filter(run=suspended).count() == 1
    office.advance(suspended)
    mailbox = Run.objects.get(id=suspended).mailbox
    assert ada_api.post(f"/runs/{suspended}/pause").json()["status"] == "paused"
    assert Run.objects.get(id=suspended).mailbox == mailbox
    for _ in range(2):
        assert ada_api.post(f"/runs/{suspended}/resume").status_code == 200
    office.advance(suspended)
    assert ada_api.post(f"/runs/{suspended}/resume").json()["status"] == "suspended"
    assert AuditEntry.objects.filter(subject=f"run {suspended}").count() == 2


def test_a_cancelling_or_quarantined_run_cannot_be_paused(ada_api: Caller, suspended: UUID) -> None:
    ada_api.post(f"/runs/{suspended}/cancel", {"reason": "Not needed."})
    answer = ada_api.post(f"/runs/{suspended}/pause")
    assert (answer.status_code, answer.json()["status"]) == (409, "cancelling")
    Run.objects.filter(id=suspended).update(status="quarantined")
    answer = ada_api.post(f"/runs/{suspended}/pause")
    assert (answer.status_code, answer.json()["status"]) == (409, "quarantined")


# The page


def test_the_page_has_one_button_for_pause_or_resume(
    ada: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/"
    assert f"{path}pause/" in ada.get(path).content.decode()
    assert "pause/" not in bea.get(path).content.decode()
    answer = ada.post(f"{path}pause/")
    assert (answer.status_code, answer["Location"]) == (302, path)
    page = ada.get(path).content.decode()
    assert "Being paused" in page
    assert f"{path}resume/" in page
    assert f"{path}pause/" not in page
    office.advance(suspended)
    page = ada.get(path).content.decode()
    assert "Paused by <bdi>ada</bdi>" in page
    assert f"{path}resume/" in page
    assert ada.get("/runs/?tab=working").content.decode().count(str(suspended)) > 0
    ada.post(f"{path}resume/")
    page = ada.get(path).content.decode()
    assert "Resume requested" in page
    assert f"{path}pause/" in page
    office.advance(suspended)
    page = ada.get(path).content.decode()
    assert "Paused by" not in page
    assert "paused by" in page
    assert "Resumed the run" in ada.get(f"{path}?tab=transcript").content.decode()


def test_a_run_that_was_over_first_says_so_on_its_page(
    ada: Client, office: Office, suspended: UUID
) -> None:
    office.cancel(suspended, "Not needed.")
    assert "pause/" not in ada.get(f"/runs/{suspended}/").content.decode()
    answer = ada.post(f"/runs/{suspended}/pause/", follow=True)
    assert "Nothing was changed: the run is cancelled already." in answer.content.decode()
