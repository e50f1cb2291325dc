"""Releasing a run from quarantine on the page, over the API and by command."""

import json
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from approvals.models import AuditEntry
from runtime.models import JournalEntry, Run
from tests.support.api_client import Caller, code_of
from tests.support.entries import body
from tests.support.office import Office
from tests.support.pages import has, shows, text, text_of

DIED = "3 workers in a row died"
WHY = {"reason": "the machine was out of memory"}


@pytest.fixture
def parked(office: Office) -> UUID:
    """A run at an approval, with recorded worker crashes."""
    run = office.start()
    Run.objects.filter(id=run).update(
        status="quarantined", reason=DIED, due_at=None, isolated=True, losses=3
    )
    return run


def test_an_admin_lets_a_run_go_on_where_it_stood(
    admin: Client, ada: Client, office: Office, parked: UUID
) -> None:
    path = f"/runs/{parked}/readmit/"
    shows(admin, parked, path)
    shows(admin, path, DIED)
    shows(ada, parked, hides=[path])
    text(ada, path, 404)
    has(text_of(admin.post(path, {"reason": " "}), 422), "the reason is required")
    assert Run.objects.get(id=parked).status == "quarantined"
    assert admin.post(path, WHY).status_code == 302
    row = Run.objects.get(id=parked)
    assert (row.status, row.reason, row.losses, row.isolated) == ("suspended", None, 0, True)
    assert row.due_at is not None
    act = AuditEntry.objects.get(run=parked, act="readmitted")
    assert (act.actor, json.loads(act.detail)["reason"]) == ("admin", WHY["reason"])
    office.advance(parked, isolated=True)
    assert office.approve(parked).status == "completed"


def test_a_run_that_does_not_verify_stays_quarantined(
    admin: Client, admin_api: Caller, parked: UUID
) -> None:
    last = JournalEntry.objects.filter(run_id=parked).latest("position")
    rows = JournalEntry.objects.filter(run_id=parked, position=last.position)
    rows.update(body=body(run_id=parked, position=last.position) + " ")
    has(text_of(admin.post(f"/runs/{parked}/readmit/", WHY), 409), "Not released")
    for act, code in (("readmit", "unverified"), ("cancel", "run_ended")):
        assert code_of(admin_api.post(f"/runs/{parked}/{act}", WHY)) == (409, code)
    assert Run.objects.get(id=parked).status == "quarantined"


def test_a_run_that_is_not_in_quarantine_is_left_as_it_is(
    admin: Client, admin_api: Caller, suspended: UUID
) -> None:
    answer = admin_api.post(f"/runs/{suspended}/readmit", WHY)
    assert code_of(answer) == (409, "not_quarantined")
    assert admin.post(f"/runs/{suspended}/readmit/", WHY).status_code == 409


def test_a_quarantined_run_is_cancelled_without_a_start(
    ada: Client, office: Office, parked: UUID
) -> None:
    shows(ada, f"/runs/{parked}/cancel/", "Cancel this run")
    before = len(office.effects.calls)
    assert ada.post(f"/runs/{parked}/cancel/", WHY).status_code == 302
    assert office.advance(parked, isolated=True).status == "cancelled"
    assert len(office.effects.calls) == before


def test_the_command_line_lets_a_run_out(parked: UUID, capsys: pytest.CaptureFixture[str]) -> None:
    def readmit(name: str, reason: str) -> None:
        call_command("readmit", str(parked), "--as", name, "--reason", reason)

    with pytest.raises(CommandError, match="the reason is required"):
        readmit("admin", "")
    with pytest.raises(CommandError, match="Only admins may release"):
        readmit("ada", "because")
    readmit("admin", "because")
    assert "out of quarantine" in capsys.readouterr().out
    with pytest.raises(CommandError, match="not in quarantine"):
        readmit("admin", "because")
