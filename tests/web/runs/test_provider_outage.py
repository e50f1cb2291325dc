"""A run that waits for its provider, on its page and over the API."""

import pytest
from django.test import Client
from django.utils import timezone

from approvals.models import Request
from runtime.core.enums import GateKind
from runtime.core.machine import retries
from runtime.ports.effects import ModelFailure
from tests.support.api_client import Caller
from tests.support.office import Office

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


def test_page_and_list_show_the_providers_answer(office: Office, ada: Client) -> None:
    run = office.start()
    page = ada.get(f"/runs/{run}/").content.decode()
    assert "Waits for the provider of its model" in page
    assert "(status 503): &lt;the provider&gt;" in page
    listed = ada.get("/runs/").content.decode()
    assert "waits for the provider, next try" in listed
    assert "(status 503): &lt;the provider&gt;" in listed


def test_the_api_says_when_the_provider_is_asked_again(office: Office, ada_api: Caller) -> None:
    run = office.start()
    for found in (ada_api.get(f"/runs/{run}").json(), ada_api.get("/runs").json()["items"][0]):
        assert found["status"] == "waiting"
        assert found["status_text"].startswith("waits for the provider, next try 20")
        assert found["status_text"].endswith(SAID)
        assert found["next_try_at"] > timezone.now().isoformat()


def test_a_run_that_waits_for_a_person_waits_for_no_provider(
    office: Office, ada: Client, ada_api: Caller, settings: object
) -> None:
    settings.ABEYANCE_OUTAGE_SECONDS = 0.0  # type: ignore[attr-defined]
    run = office.start()
    found = ada_api.get(f"/runs/{run}").json()
    assert [gate["kind"] for gate in found["gates"]] == [GateKind.HOLD]
    assert (found["status_text"], found["next_try_at"]) == (None, None)
    page = ada.get(f"/runs/{run}/").content.decode()
    assert "No reply comes from its model" in page


def test_only_admins_read_the_providers_text_while_waiting(
    office: Office, ada: Client, admin: Client
) -> None:
    run = office.start()
    page = admin.get(f"/runs/{run}/").content.decode()
    assert page.count(SHOWN) == 1
    assert "x" * 1_900 in page
    assert "x" * 2_000 not in page
    assert "no capacity" not in ada.get(f"/runs/{run}/").content.decode()


def test_only_admins_read_the_providers_text_at_the_hold(
    office: Office, ada: Client, admin: Client, settings: object
) -> None:
    settings.ABEYANCE_OUTAGE_SECONDS = 0.0  # type: ignore[attr-defined]
    run = office.start()
    for path in (f"/runs/{run}/", f"/a/{Request.objects.get(run=run).id}/"):
        assert admin.get(path).content.decode().count(SHOWN) == 1
        assert "no capacity" not in ada.get(path).content.decode()
