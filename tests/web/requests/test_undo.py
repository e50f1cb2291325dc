"""Undoing an own decision within its window: over the API, on the page, and with forged rows."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from approvals import audit
from approvals.models import AuditEntry, Request
from runtime.models import Gate, Run, Signal
from runtime.store.tables import signals
from tests.support import seeds
from tests.support.api_client import Caller, code_of
from tests.support.office import Office
from tests.support.pages import has, send, shows, text_of

WINDOW = 60.0


@pytest.fixture(autouse=True)
def window(settings: Settings) -> None:
    settings.ABEYANCE_UNDO_SECONDS = WINDOW


def decide(api: Caller, request: Request) -> dict[str, object]:
    body = {"verdict": "approve", "digest": request.request_digest, "reason": "Because."}
    answer = api.post(f"/approvals/{request.id}/decision", body)
    assert answer.status_code == 200, answer.content
    said: dict[str, object] = answer.json()
    return said


def look(run: UUID) -> None:
    """Let a worker claim the run, within the window or after it."""
    Run.objects.filter(id=run).update(due_at=timezone.now())


def started(office: Office) -> int:
    return [call.tool for call in office.effects.calls].count("set_privileges")


def test_a_decision_counts_from_the_end_of_its_window_on(
    bea_api: Caller, office: Office, suspended: UUID, settings: Settings
) -> None:
    settings.ABEYANCE_UNDO_SECONDS = 0.5
    request = office.request(suspended)
    said = decide(bea_api, request)
    assert said["effective_at"] is not None
    signal = Signal.objects.get(run=suspended)
    run = Run.objects.get(id=suspended)
    decided = Request.objects.get(id=request.id)
    assert run.due_at == signal.effective_at == decided.effective_at
    assert decided.decided_at is not None
    assert signal.effective_at == decided.decided_at + timedelta(seconds=0.5)
    # Short enough for the worker to stay, which wakes by itself when the decision counts.
    assert office.advance(suspended).status == "completed"
    assert timezone.now() >= signal.effective_at
    assert started(office) == 1
    answer = bea_api.post(f"/approvals/{request.id}/undo")
    assert code_of(answer) == (410, "too_late")


def test_a_decision_that_is_taken_back_is_none(
    bea_api: Caller, office: Office, suspended: UUID, settings: Settings
) -> None:
    request = office.request(suspended)
    decide(bea_api, request)
    effective = Signal.objects.get(run=suspended).effective_at
    look(suspended)
    run = office.advance(suspended)  # a worker lets go until the decision counts
    assert (run.status, run.due_at, started(office)) == ("suspended", effective, 0)
    assert Gate.objects.get(run=suspended).state == "decided"
    Request.objects.filter(id=request.id).update(decided_by="dora")
    answer = bea_api.post(f"/approvals/{request.id}/undo")
    assert (answer.status_code, answer.json()["decided_by"]) == (409, "dora")
    Request.objects.filter(id=request.id).update(decided_by="bea")
    answer = bea_api.post(f"/approvals/{request.id}/undo")
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    assert answer.json()["decided_by"] is None
    assert Run.objects.get(id=suspended).mailbox == run.mailbox + 1
    assert Gate.objects.get(run=suspended).state == "open"
    assert not Signal.objects.filter(run=suspended).exists()
    row = Request.objects.get(id=request.id)
    assert (row.statement, row.signature, row.effective_at) == (None, None, None)
    assert office.advance(suspended).status == "suspended"
    assert started(office) == 0
    again = bea_api.post(f"/approvals/{request.id}/undo")
    assert code_of(again) == (409, "not_decided")
    settings.ABEYANCE_UNDO_SECONDS = 0
    assert decide(bea_api, request)["effective_at"] is None
    assert office.advance(suspended).status == "completed"
    assert started(office) == 1
    acts = AuditEntry.objects.filter(subject=f"request {request.id}").order_by("seq")
    assert [row.act for row in acts] == ["requested", "approved", "undone", "approved"]
    audit.verify(suspended)


def test_an_undo_during_a_step_keeps_the_decision_out(
    bea_api: Caller,
    office: Office,
    suspended: UUID,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Undo the decision after the step has read it, before the step is committed."""
    settings.ABEYANCE_UNDO_SECONDS = 0
    request = office.request(suspended)
    decide(bea_api, request)
    undone: list[UUID] = []
    real = signals.pending

    def mail(count: int, *read: Any) -> signals.PendingSignals:
        found = real(count, *read)
        if found.due and not undone:
            undone.append(suspended)
            # As the web would, had its transaction come first: the signal is gone, the mailbox raised.
            Signal.objects.filter(run=suspended).delete()
            Gate.objects.filter(run=suspended).update(state="open", decided_at=None)
            Run.objects.filter(id=suspended).update(mailbox=count + 1)
        return found

    monkeypatch.setattr(signals, "pending", mail)
    assert office.advance(suspended).status == "suspended"
    assert undone == [suspended]
    assert started(office) == 0
    assert Gate.objects.get(run=suspended).state == "open"


# Forging


@pytest.mark.parametrize("changed", [(Signal,), (Signal, Request)], ids=len)
def test_a_decision_made_to_count_earlier_parks_the_run(
    bea_api: Caller, office: Office, suspended: UUID, changed: tuple[type[Any], ...]
) -> None:
    decide(bea_api, office.request(suspended))
    for table in changed:
        table.objects.filter(run=suspended).update(
            effective_at=timezone.now() - timedelta(seconds=1)
        )
    look(suspended)
    run = office.advance(suspended)
    assert (run.status, started(office)) == ("quarantined", 0)
    if changed == (Signal,):
        assert "can still be undone" in str(run.reason)


def test_an_undone_decision_cannot_be_restored(
    bea_api: Caller, office: Office, suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restore row, gate and signal as they were before the undo, after the window."""
    request = office.request(suspended)
    decide(bea_api, request)
    row, signal = Request.objects.get(id=request.id), Signal.objects.get(run=suspended)
    assert bea_api.post(f"/approvals/{request.id}/undo").status_code == 200
    row.save()
    later = timezone.now() + timedelta(seconds=WINDOW)
    seeds.set_clock(monkeypatch, later)
    Signal.objects.create(run_id=suspended, kind=signal.kind, body=signal.body)
    Gate.objects.filter(run=suspended).update(state="decided", decided_at=timezone.now())
    Run.objects.filter(id=suspended).update(mailbox=99, due_at=timezone.now())
    run = office.advance(suspended)
    assert (run.status, started(office)) == ("quarantined", 0)
    assert "was undone" in str(run.reason)


# The page


def test_the_page_offers_the_way_back_to_the_one_who_decided(
    bea: Client, ada: Client, asked: Request, office: Office, settings: Settings
) -> None:
    path = f"/a/{asked.id}/"
    send(bea, asked, "approve")
    shows(bea, asked, "Approved by you", f"{path}undo/")
    shows(ada, asked, hides=[f"{path}undo/"])
    has(text_of(bea.post(f"{path}undo/", follow=True)), "Undone", f"{path}approve/")
    again = text_of(bea.post(f"{path}undo/", follow=True))
    has(again, "This approval has no decision to undo.")
    settings.ABEYANCE_UNDO_SECONDS = 0
    doubt = office.in_doubt_request(office.in_doubt())
    settings.ABEYANCE_UNDO_SECONDS = WINDOW
    send(bea, doubt, "settle/give-up", reason="No trace found.")
    shows(bea, doubt, f"/a/{doubt.id}/undo/")
    bea.post(f"/a/{doubt.id}/undo/")
    assert Request.objects.get(id=doubt.id).status == "pending"
