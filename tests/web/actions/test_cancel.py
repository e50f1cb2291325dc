"""Cancelling a run, over the API and on its page."""

from uuid import UUID

from django.test import Client

from approvals.models import AuditEntry, Request
from runtime.core.continuation import RunStatus
from runtime.models import Gate, Run, Signal
from runtime.ports.effects import ModelFailure
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import has, in_order, send, shows, text, text_of

WHY = {"reason": "New Hire does not come."}


def test_a_cancelled_run_ends_and_closes_its_requests(
    ada_api: Caller, office: Office, suspended: UUID
) -> None:
    for _ in range(2):  # twice is once
        answer = ada_api.post(f"/runs/{suspended}/cancel", WHY)
        assert answer.status_code == 200
    assert (answer.json()["id"], answer.json()["gates"]) == (str(suspended), [])
    assert Signal.objects.filter(run=suspended, kind="cancel").count() == 1
    assert AuditEntry.objects.filter(run=suspended, subject=f"run {suspended}").count() == 1
    assert office.advance(suspended).status == RunStatus.CANCELLED
    run = ada_api.get(f"/runs/{suspended}").json()
    assert (run["status"], run["reason"]) == ("cancelled", WHY["reason"])
    assert "set_privileges" not in [call.tool for call in office.effects.calls]


def test_a_quarantined_run_must_verify_to_be_cancelled(
    ada: Client, ada_api: Caller, suspended: UUID
) -> None:
    Run.objects.filter(id=suspended).update(
        status="quarantined", reason="the head is another", head="0" * 64
    )
    answer = ada_api.post(f"/runs/{suspended}/cancel", WHY)
    assert (answer.status_code, answer.json()["status"]) == (409, "quarantined")
    has(text_of(ada.post(f"/runs/{suspended}/cancel/", WHY), 409), "does not verify")


def test_a_failed_run_is_over_too(ada_api: Caller, office: Office) -> None:
    office.effects.agents["hr_onboarding"] = lambda request: ModelFailure(error="gone")
    answer = ada_api.post(f"/runs/{office.start()}/cancel", WHY)
    assert (answer.status_code, answer.json()["status"]) == (409, "failed")


# The page


def test_the_cancel_page_lists_done_and_pending_calls(ada: Client, suspended: UUID) -> None:
    page = text(ada, f"/runs/{suspended}/cancel/")
    done, pending = "<bdi>create_account</bdi>", "<bdi>set_privileges</bdi>"
    in_order(page, "will not be undone", done, "Cancelled with the run")
    assert page.index(pending) > page.index("Cancelled with the run")
    assert Gate.objects.get().state == Gate.State.OPEN


def test_the_page_says_that_nothing_has_happened_yet(ada: Client, office: Office) -> None:
    office.effects.agents["hr_onboarding"] = office.effects.agents["account_agent"]
    del office.effects.tools["create_account"]
    path = f"/runs/{office.start()}/cancel/"
    shows(ada, path, "no action of this run has changed anything")


def test_a_call_in_doubt_is_named_before_the_end(ada: Client, office: Office) -> None:
    path = f"/runs/{office.in_doubt()}/cancel/"
    shows(ada, path, "in doubt: started, outcome unknown", "stays in doubt")


def test_cancelling_on_the_page_leads_back_to_the_run(
    ada: Client, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/cancel/"
    empty = text_of(ada.post(path, {"reason": " "}), 422)
    has(empty, "Not cancelled: the reason is required")
    answer = ada.post(path, {"reason": "Not\r\nneeded."})
    assert (answer.status_code, answer["Location"]) == (302, f"/runs/{suspended}/")
    shows(ada, suspended, "Being cancelled", hides=["Cancel…"])
    office.advance(suspended)
    ended = "not started: the run was ended first"
    shows(ada, suspended, "Cancelled by <bdi>ada</bdi>", "Not\nneeded.", ended)
    again = ada.post(path, WHY)
    assert (again.status_code, again["Location"]) == (302, f"/runs/{suspended}/")


def test_the_page_says_that_the_run_was_over_first(
    ada: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    path = f"/runs/{suspended}/cancel/"
    shows(ada, path, "This run is over")
    has(text_of(ada.post(path, WHY), 409), "the run was over first", WHY["reason"])
    has(text_of(bea.post(path, WHY), 403), hides=[WHY["reason"]])  # no form to send again


def test_the_page_is_for_those_who_may(
    bea: Client, cyril: Client, admin: Client, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/cancel/"
    text(cyril, path, 404)
    assert [client.post(path, WHY).status_code for client in (cyril, bea)] == [404, 403]
    shows(bea, path, "You may not cancel this run")
    shows(bea, suspended, hides=[path])
    shows(admin, suspended, path)
    assert Gate.objects.get().state == Gate.State.OPEN


def test_an_approval_of_a_cancelled_run_says_who_ended_it(
    ada: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    ada.post(f"/runs/{suspended}/cancel/", WHY)
    request = office.request(suspended)
    ended = ("Cancelled by <bdi>ada</bdi>", WHY["reason"])
    shows(bea, request, *ended, hides=["/approve/"])
    page = text_of(send(bea, request, "deny", reason="my own words"), 409)
    has(page, "The run was ended first", "my own words")
    assert Request.objects.get(id=request.id).status == "cancelled"


def test_an_approval_that_took_no_effect_says_so(
    ada: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    send(bea, request, "approve")
    ada.post(f"/runs/{suspended}/cancel/", WHY)
    assert office.advance(suspended).status == RunStatus.CANCELLED
    assert "set_privileges" not in [call.tool for call in office.effects.calls]
    ended = "The run was ended before this took effect"
    shows(bea, request, ended, hides=["The call may start once"])
