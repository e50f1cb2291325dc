"""The page of a call in doubt, and the three ways to resolve it."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from approvals.models import Request
from runtime.core.continuation import RunStatus
from runtime.ports.effects import ToolResult
from tests.support import seeds
from tests.support.fake_ports import FakeTool
from tests.support.office import MAIL_RESULT, Office

HOSTILE = "<script>alert(1)</script>\u202ebea"


@pytest.fixture
def doubt(office: Office) -> UUID:
    """Ada's run, whose welcome mail is in doubt."""
    return office.in_doubt()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database time after which the first attempt cannot be running."""
    at = timezone.now() + timedelta(hours=1)
    seeds.set_clock(monkeypatch, at)


def _page(client: Client, request: Request) -> str:
    answer = client.get(f"/a/{request.id}/")
    assert answer.status_code == 200
    return answer.content.decode()


def _send(client: Client, request: Request, outcome: str, **form: str) -> HttpResponse:
    return client.post(f"/a/{request.id}/settle/{outcome}/", form)  # type: ignore[return-value]


def _heard(office: Office) -> Any:
    """The last message to the model of hr_onboarding."""
    told = [request for request in office.effects.models if request.agent == "hr_onboarding"][-1]
    return told.messages[-1]["results"][0]


def test_the_page_shows_the_lost_call_and_its_error(
    bea: Client, office: Office, doubt: UUID
) -> None:
    page = _page(bea, office.in_doubt_request(doubt))
    assert "Started call" in page
    assert "<bdi>send_welcome_mail</bdi></b> was started <time" in page
    assert "the connection was cut" in page
    assert "<bdi>username</bdi>" in page
    assert "Not retried automatically" in page
    assert page.index("Started call") < page.index("Did it happen?")


def test_the_page_offers_three_ways_and_the_result_schema(
    bea: Client, office: Office, doubt: UUID
) -> None:
    page = _page(bea, office.in_doubt_request(doubt))
    for way in ("happened", "run-again", "give-up"):
        assert f"/settle/{way}/" in page
    assert "The tool returns JSON of this schema" in page
    assert "message_id" in page


def test_a_tool_without_a_declared_result_type(bea: Client, office: Office) -> None:
    office.effects.result_schema = None
    page = _page(bea, office.in_doubt_request(office.in_doubt()))
    assert "so any text or JSON value is accepted" in page


def test_a_tool_that_returns_nothing_needs_no_json(bea: Client, office: Office) -> None:
    office.effects.result_schema = {"type": "null"}
    run = office.in_doubt()
    page = _page(bea, office.in_doubt_request(run))
    assert "The tool returns no value. Report null" in page
    assert "null</textarea>" in page
    assert _send(bea, office.in_doubt_request(run), "happened", result="null").status_code == 302
    assert office.advance(run).status == RunStatus.COMPLETED


def test_running_again_has_to_wait(bea: Client, office: Office, doubt: UUID) -> None:
    request = office.in_doubt_request(doubt)
    page = _page(bea, request)
    assert "disabled" in page
    assert "Possible from <time" in page
    answer = _send(bea, request, "run-again")
    assert answer.status_code == 409
    assert "The first start may still be running" in answer.content.decode()
    assert office.in_doubt_request(doubt).status == "pending"


def test_running_again_starts_it_once_more(
    bea: Client, office: Office, doubt: UUID, later: None
) -> None:
    request = office.in_doubt_request(doubt)
    assert "disabled" not in _page(bea, request)
    office.effects.tools["send_welcome_mail"] = FakeTool(
        body=lambda request: ToolResult(value=MAIL_RESULT)
    )
    answer = _send(bea, request, "run-again", reason="No mail in the log.")
    assert answer.status_code == 302
    page = _page(bea, request)
    assert "To be run again, approved by <bdi>bea</bdi>" in page
    assert "No mail in the log." in page
    assert office.advance(doubt).status == RunStatus.COMPLETED
    assert [call.tool for call in office.effects.calls].count("send_welcome_mail") == 2
    assert "Status: done" in _page(bea, request)


def test_a_reported_result_is_marked_as_a_persons_report(
    bea: Client, ada: Client, office: Office, doubt: UUID
) -> None:
    request = office.in_doubt_request(doubt)
    answer = _send(bea, request, "happened", result='{"message_id": "m-17"}', reason="In the log.")
    assert (answer.status_code, answer["Location"]) == (302, f"/a/{request.id}/")
    assert "It happened, as reported by <bdi>bea</bdi>" in _page(bea, request)
    assert office.advance(doubt).status == RunStatus.COMPLETED
    heard = _heard(office)
    assert (heard["content"], heard["reported_by"]) == ({"message_id": "m-17"}, "bea")
    assert "m-17" in _page(bea, request)
    page = ada.get(f"/runs/{doubt}/").content.decode()
    assert "reported as done by <bdi>bea</bdi>" in page
    page = ada.get(f"/runs/{doubt}/?tab=transcript").content.decode()
    assert "<bdi>send_welcome_mail</bdi>, reported by <bdi>bea</bdi>" in page


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("", "result is required"),
        ("sent", "result is not JSON (line 1)"),
        ("[" * 100_000, "result is not JSON"),
        ('{"message_id": 7}', "result.message_id must be of type string"),
        ("{}", "result.message_id is missing"),
        ("NaN", "result not a finite number"),
    ],
)
def test_an_invalid_result_is_refused_and_kept_in_the_form(
    bea: Client, office: Office, doubt: UUID, result: str, said: str
) -> None:
    answer = _send(
        bea, office.in_doubt_request(doubt), "happened", result=result, reason="I looked."
    )
    assert answer.status_code == 422
    page = answer.content.decode()
    assert said in page
    assert "I looked." in page
    assert (result or "result") in page.replace("&quot;", '"')
    assert office.in_doubt_request(doubt).status == "pending"


def test_giving_up_tells_the_agent_the_reason(bea: Client, office: Office, doubt: UUID) -> None:
    request = office.in_doubt_request(doubt)
    assert _send(bea, request, "give-up", reason=" ").status_code == 422
    assert _send(bea, request, "give-up", reason="No trace\r\nfound.").status_code == 302
    assert "Given up by <bdi>bea</bdi>" in _page(bea, request)
    office.advance(doubt)
    assert "No trace\nfound." in str(_heard(office)["content"])
    page = bea.get(f"/runs/{doubt}/").content.decode()
    assert "given up by <bdi>bea</bdi>" in page


def test_hostile_words_are_text(bea: Client, office: Office, doubt: UUID) -> None:
    request = office.in_doubt_request(doubt)
    answer = _send(bea, request, "happened", result=HOSTILE, reason=HOSTILE)
    assert "<script>" not in answer.content.decode()
    _send(bea, request, "give-up", reason=HOSTILE)
    page = _page(bea, request)
    assert "<script>" not in page
    assert "\u202e" not in page


def test_a_doubt_of_a_cancelled_run_stays_one(
    ada: Client, bea: Client, office: Office, doubt: UUID
) -> None:
    ada.post(f"/runs/{doubt}/cancel/", {"reason": "Enough."})
    page = _page(bea, office.in_doubt_request(doubt))
    assert "The run was cancelled by <bdi>ada</bdi>" in page
    assert "it may have happened" in page
    assert "/settle/" not in page
    assert office.advance(doubt).status == RunStatus.CANCELLED
    page = bea.get(f"/runs/{doubt}/").content.decode()
    assert "in doubt: the run was ended" in page


def test_the_run_leads_to_the_page(ada: Client, office: Office, doubt: UUID) -> None:
    page = ada.get(f"/runs/{doubt}/").content.decode()
    assert f"/a/{office.in_doubt_request(doubt).id}/" in page
    assert "Resolve it" in page


def test_a_settled_doubt_is_taken_up_in_a_moment(bea: Client, office: Office, doubt: UUID) -> None:
    _send(bea, office.in_doubt_request(doubt), "give-up", reason="No trace found.")
    page = bea.get(f"/runs/{doubt}/").content.decode()
    assert "The outcome is reported. The worker applies it shortly" in page
