"""Cancelling a run, over the API and on its page."""

from uuid import UUID

from django.test import Client

from approvals.models import AuditEntry, Request
from runtime.core.continuation import RunStatus
from runtime.models import Gate, Run, Signal
from runtime.ports.effects import ModelFailure
from tests.support.api_client import Caller
from tests.support.office import Office

WHY = {"reason": "New Hire does not come."}


def test_a_cancelled_run_ends_and_closes_its_requests(
    ada_api: Caller, office: Office, suspended: UUID
) -> None:
    answer = ada_api.post(f"/runs/{suspended}/cancel", WHY)
    assert answer.status_code == 200
    assert (answer.json()["id"], answer.json()["gates"]) == (str(suspended), [])
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
    answer = ada.post(f"/runs/{suspended}/cancel/", WHY)
    assert answer.status_code == 409
    assert "does not verify" in answer.content.decode()


def test_cancelling_twice_is_cancelling_once(ada_api: Caller, suspended: UUID) -> None:
    for _ in range(2):
        assert ada_api.post(f"/runs/{suspended}/cancel", WHY).status_code == 200
    assert Signal.objects.filter(run=suspended, kind="cancel").count() == 1
    assert AuditEntry.objects.filter(run=suspended, subject=f"run {suspended}").count() == 1


# The page


def test_the_cancel_page_lists_done_and_pending_calls(
    ada: Client, office: Office, suspended: UUID
) -> None:
    page = ada.get(f"/runs/{suspended}/cancel/").content.decode()
    kept, never = page.index("will not be undone"), page.index("Cancelled with the run")
    assert kept < page.index("<bdi>create_account</bdi>") < never
    assert page.index("<bdi>set_privileges</bdi>") > never
    assert Gate.objects.get().state == Gate.State.OPEN


def test_the_page_says_that_nothing_has_happened_yet(ada: Client, office: Office) -> None:
    office.effects.agents["hr_onboarding"] = office.effects.agents["account_agent"]
    del office.effects.tools["create_account"]
    page = ada.get(f"/runs/{office.start()}/cancel/").content.decode()
    assert "no action of this run has changed anything" in page


def test_a_call_in_doubt_is_named_before_the_end(ada: Client, office: Office) -> None:
    page = ada.get(f"/runs/{office.in_doubt()}/cancel/").content.decode()
    assert "in doubt: started, outcome unknown" in page
    assert "stays in doubt" in page


def test_cancelling_on_the_page_leads_back_to_the_run(
    ada: Client, office: Office, suspended: UUID
) -> None:
    answer = ada.post(f"/runs/{suspended}/cancel/", {"reason": "Not\r\nneeded."})
    assert (answer.status_code, answer["Location"]) == (302, f"/runs/{suspended}/")
    page = ada.get(answer["Location"]).content.decode()
    assert "Being cancelled" in page
    assert "Cancel…" not in page
    office.advance(suspended)
    page = ada.get(answer["Location"]).content.decode()
    assert "Cancelled by <bdi>ada</bdi>" in page
    assert "Not\nneeded." in page
    assert "not started: the run was ended first" in page


def test_two_clicks_lead_to_the_same_place(ada: Client, office: Office, suspended: UUID) -> None:
    ada.post(f"/runs/{suspended}/cancel/", WHY)
    office.advance(suspended)
    answer = ada.post(f"/runs/{suspended}/cancel/", WHY)
    assert (answer.status_code, answer["Location"]) == (302, f"/runs/{suspended}/")


def test_the_page_refuses_an_empty_reason(ada: Client, suspended: UUID) -> None:
    answer = ada.post(f"/runs/{suspended}/cancel/", {"reason": " "})
    assert answer.status_code == 422
    assert "Not cancelled: the reason is required" in answer.content.decode()


def test_the_page_says_that_the_run_was_over_first(
    ada: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    assert "This run is over" in ada.get(f"/runs/{suspended}/cancel/").content.decode()
    answer = ada.post(f"/runs/{suspended}/cancel/", WHY)
    assert answer.status_code == 409
    page = answer.content.decode()
    assert "the run was over first" in page
    assert WHY["reason"] in page


def test_the_page_is_for_those_who_may(
    bea: Client, cyril: Client, admin: Client, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/cancel/"
    assert cyril.get(path).status_code == 404
    assert cyril.post(path, WHY).status_code == 404
    assert "You may not cancel this run" in bea.get(path).content.decode()
    assert path not in bea.get(f"/runs/{suspended}/").content.decode()
    assert bea.post(path, WHY).status_code == 403
    assert path in admin.get(f"/runs/{suspended}/").content.decode()
    assert Gate.objects.get().state == Gate.State.OPEN


def test_a_person_who_may_not_cancel_is_not_shown_the_form_again(
    bea: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    answer = bea.post(f"/runs/{suspended}/cancel/", WHY)
    assert answer.status_code == 403
    assert WHY["reason"] not in answer.content.decode()


def test_an_approval_of_a_cancelled_run_says_who_ended_it(
    ada: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    ada.post(f"/runs/{suspended}/cancel/", WHY)
    request = office.request(suspended)
    page = bea.get(f"/a/{request.id}/").content.decode()
    assert "Cancelled by <bdi>ada</bdi>" in page
    assert WHY["reason"] in page
    assert "/approve/" not in page
    answer = bea.post(
        f"/a/{request.id}/deny/", {"digest": request.request_digest, "reason": "my own words"}
    )
    assert answer.status_code == 409
    page = answer.content.decode()
    assert "The run was ended first" in page
    assert "my own words" in page
    assert Request.objects.get(id=request.id).status == "cancelled"


def test_an_approval_that_took_no_effect_says_so(
    ada: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    bea.post(f"/a/{request.id}/approve/", {"digest": request.request_digest})
    ada.post(f"/runs/{suspended}/cancel/", WHY)
    assert office.advance(suspended).status == RunStatus.CANCELLED
    assert "set_privileges" not in [call.tool for call in office.effects.calls]
    page = bea.get(f"/a/{request.id}/").content.decode()
    assert "The run was ended before this took effect" in page
    assert "The call may start once" not in page


def test_a_failed_run_is_over_too(ada_api: Caller, office: Office) -> None:
    office.effects.agents["hr_onboarding"] = lambda request: ModelFailure(error="gone")
    answer = ada_api.post(f"/runs/{office.start()}/cancel", WHY)
    assert (answer.status_code, answer.json()["status"]) == (409, "failed")
