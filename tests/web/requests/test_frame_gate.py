"""The page of a frame gate: its reason, its two verdicts, and the other pages that show it."""

import json

import pytest
from django.http import HttpResponse
from django.test import Client

from approvals.models import Request
from runtime.models import Run
from tests.support.office import Office

WHY = "account_agent stops after every reply"


@pytest.fixture
def hold(office: Office) -> Request:
    return office.held(WHY)


def _send(client: Client, request: Request, way: str, **form: str) -> HttpResponse:
    body = {"digest": request.request_digest, **form}
    return client.post(f"/a/{request.id}/{way}/", body)  # type: ignore[return-value]


def _page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_page_says_why_and_offers_both_ways(bea: Client, hold: Request) -> None:
    page = _page(bea, f"/a/{hold.id}/")
    assert WHY in page
    assert "Why it stopped" in page
    assert "Nothing new starts" in page
    assert "Continue" in page
    assert "Stop the run" in page


def test_the_inbox_and_the_run_show_it(bea: Client, hold: Request) -> None:
    assert WHY in _page(bea, "/inbox/")
    run = _page(bea, f"/runs/{hold.run_id}/")
    assert "The agent is held for review" in run
    assert "stopped: waits for a person to continue it" in run
    assert "hold" in _page(bea, "/runs/")


def test_letting_it_go_on_is_recorded_and_audited(
    bea: Client, hold: Request, office: Office
) -> None:
    assert _send(bea, hold, "continue").status_code == 302
    hold.refresh_from_db()
    assert (hold.status, hold.decided_by) == ("approved", "bea")
    assert json.loads(hold.statement or "")["verdict"] == "continue"
    office.advance(hold.run_id)
    page = _page(bea, f"/a/{hold.id}/")
    assert "Continued by <bdi>bea</bdi>" in page
    assert "Nothing new starts" not in page
    assert "continued by" in _page(bea, f"/runs/{hold.run_id}/")


def test_stopping_needs_a_reason_and_ends_the_run(
    bea: Client, hold: Request, office: Office
) -> None:
    refused = _send(bea, hold, "stop")
    assert refused.status_code == 422
    assert "the reason is required to stop the run" in refused.content.decode()
    assert _send(bea, hold, "stop", reason="It goes in circles.").status_code == 302
    office.advance(hold.run_id)
    run = Run.objects.get(id=hold.run_id)
    assert (run.status, run.reason) == ("cancelled", "It goes in circles.")
    assert "The run was stopped by <bdi>bea</bdi>" in _page(bea, f"/a/{hold.id}/")
