"""External events over the API, and waiting calls on pages."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from approvals import audit
from approvals.models import AuditEntry
from runtime.core.enums import EffectClass
from runtime.core.limits import MAX_EVENT_DATA
from runtime.models import ExternalEvent
from tests.support.api_client import Caller, code_of, field_of
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import Office
from tests.support.pages import has, shows

UNTIL = timezone.now() + timedelta(days=2)
MATCH = {"contract": "<i>C-1</i>"}
EVENT = {"id": "e-1", "name": "signed", "data": {**MATCH, "by": "Bo"}}


@pytest.fixture
def waiting(office: Office) -> UUID:
    """Ada's run with one call that waits for an event, and one that waits for a time."""
    until = UNTIL.isoformat()
    office.effects.agents["hr_onboarding"] = turns(
        ask(
            ("wait_for", {"event": "signed", "match": MATCH, "until": until}),
            ("sleep_until", {"moment": until}),
        ),
        say("done"),
    )
    office.effects.tools["wait_for"] = FakeTool(effect=EffectClass.READ, waits="event")
    office.effects.tools["sleep_until"] = FakeTool(effect=EffectClass.READ, waits="time")
    return office.start()


def test_an_event_is_told_once_by_its_id(admin_api: Caller, ada_api: Caller, waiting: UUID) -> None:
    (wait,) = ada_api.get(f"/runs/{waiting}").json()["waits"]
    assert (wait["event"], wait["match"]) == ("signed", MATCH)
    assert (wait["frame"], wait["call"]) == ("0", "c1.0")
    assert ada_api.get("/runs").json()["items"][0]["waits"] == [wait]
    told = admin_api.post("/events", EVENT)
    assert (told.status_code, told.json()["waits"], told.json()["name"]) == (201, 1, "signed")
    again = admin_api.post("/events", EVENT)
    assert (again.status_code, again.json()) == (200, told.json())
    other = admin_api.post("/events", {**EVENT, "data": {}})
    assert code_of(other) == (409, "event_conflict")
    assert ada_api.get(f"/runs/{waiting}").json()["waits"] == []
    row = AuditEntry.objects.get(run=waiting, act="sent")
    assert (row.actor, "signed" in row.detail) == ("admin", True)
    audit.verify(waiting)


def test_an_event_has_a_shape(admin_api: Caller) -> None:
    for change, field in (
        ({"id": ""}, "id"),
        ({"id": "x" * 201}, "id"),
        ({"id": "nul\x00"}, "id"),
        ({"name": "\ud800"}, "name"),
        ({"data": None}, "data"),
        ({"data": {"x": "nul\x00"}}, "data.x"),
        ({"data": {"x": "y" * MAX_EVENT_DATA}}, "data"),
    ):
        assert field_of(admin_api.post("/events", {**EVENT, **change})) == (422, field), field
    assert not ExternalEvent.objects.exists()


def test_the_run_page_names_the_wait_of_a_call(
    ada: Client, admin_api: Caller, office: Office, waiting: UUID
) -> None:
    waits = ("waits for an event until", "&lt;i&gt;C-1&lt;/i&gt;", "waits until")
    page = shows(ada, waiting, *waits, "Waited for times and events")
    agents = page.partition('id="agents"')[2].partition("</section>")[0]
    has(agents, f'<time datetime="{UNTIL:%Y-%m-%d}')
    shows(ada, "/runs/", "at the latest")
    admin_api.post("/events", EVENT)
    office.advance(waiting)
    shows(ada, waiting, "its event came", hides=["waits for an event until"])
    shows(ada, f"/runs/{waiting}/?step=0%2Fc1.0", "&quot;id&quot;: &quot;e-1&quot;")
    office.cancel(waiting, "Not needed.")
    shows(ada, waiting, "ended with the run", hides=["waits until"])
