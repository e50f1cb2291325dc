"""The page of a frame gate: its reason, its two verdicts, and the other pages that show it."""

import json

import pytest
from django.test import Client

from approvals.models import Request
from runtime.models import Run
from tests.support.office import Office
from tests.support.pages import has, send, shows, text_of

WHY = "account_agent stops after every reply"


@pytest.fixture
def hold(office: Office) -> Request:
    return office.held(WHY)


def test_pages_say_why_it_stopped_and_offer_both_ways(bea: Client, hold: Request) -> None:
    ways = ("Continue", "Stop the run")
    shows(bea, hold, WHY, "Why it stopped", "Nothing new starts", *ways)
    shows(bea, "/inbox/", WHY)
    state = "stopped: waits for a person to continue it"
    shows(bea, hold.run_id, "The agent is held for review", state)
    shows(bea, "/runs/", "hold")


def test_letting_it_go_on_is_recorded_and_audited(
    bea: Client, hold: Request, office: Office
) -> None:
    assert send(bea, hold, "continue").status_code == 302
    hold.refresh_from_db()
    assert (hold.status, hold.decided_by) == ("approved", "bea")
    assert json.loads(hold.statement or "")["verdict"] == "continue"
    office.advance(hold.run_id)
    shows(bea, hold, "Continued by <bdi>bea</bdi>", hides=["Nothing new starts"])
    shows(bea, hold.run_id, "continued by")


def test_stopping_needs_a_reason_and_ends_the_run(
    bea: Client, hold: Request, office: Office
) -> None:
    has(text_of(send(bea, hold, "stop"), 422), "the reason is required to stop the run")
    assert send(bea, hold, "stop", reason="It goes in circles.").status_code == 302
    office.advance(hold.run_id)
    run = Run.objects.get(id=hold.run_id)
    assert (run.status, run.reason) == ("cancelled", "It goes in circles.")
    shows(bea, hold, "The run was stopped by <bdi>bea</bdi>")
