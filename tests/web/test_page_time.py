"""Time limits of a page: it omits optional parts and says so, and is aborted after ten seconds."""

from uuid import UUID

import pytest
from django.test import Client

from runtime.queries import time_limits
from runtime.queries.transcript.transcript import read_transcript
from runtime.web.display import escape_visible
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import shows


@pytest.fixture
def too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limits, "HARD_SECONDS", 0.0)


def test_a_late_page_names_its_omitted_parts(
    bea: Client, office: Office, suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "SOFT_SECONDS", 0.0)
    left_out = "Left out: this page took too long."
    unsearched = "Not searched for look-alike letters: this page took too long."
    request = office.request(suspended)
    shows(bea, request, left_out, unsearched, "Approve", hides=["First request like this"])
    office.approve(suspended)
    outcomes = "The outcomes of the calls are left out"
    shows(bea, "/inbox/?view=decided", outcomes, hides=[">Done<"])


def test_a_page_that_takes_too_long_is_given_up(
    too_late: None, bea: Client, bea_api: Caller, office: Office, suspended: UUID
) -> None:
    """Forms and the API have no such limit."""
    bea.raise_request_exception = False
    request = office.request(suspended)
    for place in ("/inbox/", request, suspended, f"/runs/{suspended}/at/3/"):
        shows(bea, place, "This page takes too long", status=503)
    assert bea_api.get(f"/approvals/{request.id}").status_code == 200
    body = {"digest": request.request_digest}
    assert bea.post(f"/a/{request.id}/approve/", body).status_code == 302


def test_the_time_of_a_page_bounds_its_python_as_well(too_late: None, suspended: UUID) -> None:
    with time_limits.page(bounded=True), pytest.raises(time_limits.TooLong):
        read_transcript(suspended)
    with time_limits.page(bounded=True), pytest.raises(time_limits.TooLong):
        escape_visible("x")
