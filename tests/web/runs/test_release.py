"""Releasing a run from quarantine on the page, over the API and by command."""

import json
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from approvals.models import AuditEntry
from runtime.models import JournalEntry, Run
from tests.support.api_client import Caller
from tests.support.entries import body
from tests.support.office import Office


@pytest.fixture
def parked(office: Office) -> UUID:
    """A run at an approval, with recorded worker crashes."""
    run = office.start()
    reason = "3 workers in a row died"
    Run.objects.filter(id=run).update(
        status="quarantined", reason=reason, due_at=None, isolated=True, losses=3
    )
    return run


def stained(run: UUID) -> None:
    last = JournalEntry.objects.filter(run_id=run).order_by("position").last()
    assert last is not None
    text = body(run_id=run, position=last.position)
    JournalEntry.objects.filter(run_id=run, position=last.position).update(body=text + " ")


def test_an_admin_lets_a_run_go_on_where_it_stood(
    admin: Client, office: Office, parked: UUID
) -> None:
    assert f"/runs/{parked}/readmit/" in admin.get(f"/runs/{parked}/").content.decode()
    assert "3 workers in a row died" in admin.get(f"/runs/{parked}/readmit/").content.decode()
    answer = admin.post(f"/runs/{parked}/readmit/", {"reason": "the machine was out of memory"})
    assert answer.status_code == 302
    row = Run.objects.get(id=parked)
    assert (row.status, row.reason, row.losses, row.isolated) == ("suspended", None, 0, True)
    assert row.due_at is not None
    act = AuditEntry.objects.get(run=parked, act="readmitted")
    assert (act.actor, json.loads(act.detail)["reason"]) == (
        "admin",
        "the machine was out of memory",
    )
    office.advance(parked, isolated=True)
    assert office.approve(parked).status == "completed"


def test_it_takes_a_reason_and_only_from_admins(admin: Client, ada: Client, parked: UUID) -> None:
    answer = admin.post(f"/runs/{parked}/readmit/", {"reason": " "})
    assert answer.status_code == 422
    assert "the reason is required" in answer.content.decode()
    assert ada.get(f"/runs/{parked}/readmit/").status_code == 404
    assert f"/runs/{parked}/readmit/" not in ada.get(f"/runs/{parked}/").content.decode()
    assert Run.objects.get(id=parked).status == "quarantined"


def test_a_run_that_does_not_verify_stays_quarantined(
    admin: Client, admin_api: Caller, parked: UUID
) -> None:
    stained(parked)
    answer = admin.post(f"/runs/{parked}/readmit/", {"reason": "try"})
    assert answer.status_code == 409
    assert "Not released" in answer.content.decode()
    answer = admin_api.post(f"/runs/{parked}/readmit", {"reason": "try"})
    assert (answer.status_code, answer.json()["code"]) == (409, "unverified")
    answer = admin_api.post(f"/runs/{parked}/cancel", {"reason": "try"})
    assert (answer.status_code, answer.json()["code"]) == (409, "run_ended")
    assert Run.objects.get(id=parked).status == "quarantined"


def test_a_run_that_is_not_in_quarantine_is_left_as_it_is(
    admin: Client, admin_api: Caller, suspended: UUID
) -> None:
    answer = admin_api.post(f"/runs/{suspended}/readmit", {"reason": "try"})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_quarantined")
    assert admin.post(f"/runs/{suspended}/readmit/", {"reason": "try"}).status_code == 409


def test_a_quarantined_run_is_cancelled_without_a_start(
    ada: Client, office: Office, parked: UUID
) -> None:
    assert "Cancel this run" in ada.get(f"/runs/{parked}/cancel/").content.decode()
    before = len(office.effects.calls)
    assert ada.post(f"/runs/{parked}/cancel/", {"reason": "enough"}).status_code == 302
    assert office.advance(parked, isolated=True).status == "cancelled"
    assert len(office.effects.calls) == before


def test_the_command_line_lets_a_run_out(
    cast: object, parked: UUID, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError, match="the reason is required"):
        call_command("readmit", str(parked), "--as", "admin", "--reason", "")
    with pytest.raises(CommandError, match="Only admins may release"):
        call_command("readmit", str(parked), "--as", "ada", "--reason", "because")
    call_command("readmit", str(parked), "--as", "admin", "--reason", "because")
    assert "out of quarantine" in capsys.readouterr().out
    with pytest.raises(CommandError, match="not in quarantine"):
        call_command("readmit", str(parked), "--as", "admin", "--reason", "because")
