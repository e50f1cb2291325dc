"""A run that waits for its provider, on its page and over the API."""

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Request
from runtime.core.machine import retries
from runtime.ports.effects import ModelFailure
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import shows

SAID = "openai:a is in trouble (status 503): <the provider>"
WROTE = "no capacity <b>in eu-1</b> until noon " + "x" * 3_000
SHOWN = "no capacity &lt;b&gt;in eu-1&lt;/b&gt; until noon"


@pytest.fixture(autouse=True)
def out(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider of hr_onboarding does not answer, and the first round ends at once."""
    fault = ModelFailure(error=SAID, retryable=True, model="openai:a", said=WROTE)
    office.effects.agents["hr_onboarding"] = lambda request: fault
    monkeypatch.setattr(retries, "_worth", lambda policy, cause: False)
    monkeypatch.setattr(retries, "MIN_ROUND_SECONDS", 200.0)


def test_page_list_and_api_say_what_it_waits_for(
    office: Office, ada: Client, admin: Client, ada_api: Caller
) -> None:
    run, why = office.start(), "(status 503): &lt;the provider&gt;"
    shows(ada, run, "Waits for the provider of its model", why, hides=["no capacity"])
    shows(ada, "/runs/", "waits for the provider, next try", why)
    assert shows(admin, run, "x" * 1_900, hides=["x" * 2_000]).count(SHOWN) == 1
    for found in (ada_api.get(f"/runs/{run}").json(), ada_api.get("/runs").json()["items"][0]):
        assert found["status"] == "waiting"
        assert found["status_text"].startswith("waits for the provider, next try 20")
        assert found["status_text"].endswith(SAID)
        assert found["next_try_at"] > timezone.now().isoformat()


def test_a_run_that_waits_for_a_person_waits_for_no_provider(
    office: Office, ada: Client, admin: Client, ada_api: Caller, settings: Settings
) -> None:
    settings.ABEYANCE_OUTAGE_SECONDS = 0.0
    run = office.start()
    found = ada_api.get(f"/runs/{run}").json()
    assert [gate["kind"] for gate in found["gates"]] == ["hold"]
    assert (found["status_text"], found["next_try_at"]) == (None, None)
    shows(ada, run, "No reply comes from its model")
    for place in (run, Request.objects.get(run=run)):
        assert shows(admin, place).count(SHOWN) == 1
        shows(ada, place, hides=["no capacity"])
