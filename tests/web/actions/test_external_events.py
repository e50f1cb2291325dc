"""External events over the API, and waiting calls on pages; kill switches on their page, over the API, by command."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from approvals.models import AuditEntry
from approvals.signed import audit
from runtime.core.values.enums import EffectClass
from runtime.core.values.limits import MAX_EVENT_DATA
from runtime.models import ExternalEvent, KillSwitch
from tests.support.api_client import Caller, code_of, field_of
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import Office
from tests.support.pages import has, shows, text_of

UNTIL = timezone.now() + timedelta(days=2)
MATCH = {"contract": "<i>C-1</i>"}
EVENT = {"id": "e-1", "name": "signed", "data": {**MATCH, "by": "Bo"}}


@pytest.fixture
def waiting(office: Office) -> UUID:
    """Ada's run with one call that waits for an event, and one that waits for a time."""
    until = UNTIL.isoformat()
    event = ("wait_for", {"event": "signed", "match": MATCH, "until": until})
    both = ask(event, ("sleep_until", {"moment": until}))
    office.effects.agents["hr_onboarding"] = turns(both, say("done"))
    office.effects.tools["wait_for"] = FakeTool(effect=EffectClass.READ, waits="event")
    office.effects.tools["sleep_until"] = FakeTool(effect=EffectClass.READ, waits="time")
    return office.start()


def test_an_event_is_told_once_by_its_id(admin_api: Caller, ada_api: Caller, waiting: UUID) -> None:
    (wait,) = ada_api.get(f"/runs/{waiting}").json()["waits"]
    assert (wait["event"], wait["match"]) == ("signed", MATCH)
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
    has(page, f'<time datetime="{UNTIL:%Y-%m-%d}')
    shows(ada, "/runs/", "at the latest")
    fork = text_of(ada.get(f"/runs/{waiting}/fork/", follow=True))
    has(fork, "waited, and starts to wait again", hides=["approvals are not copied"])
    admin_api.post("/events", EVENT)
    office.advance(waiting)
    shows(ada, waiting, "its event came", hides=["waits for an event until"])
    shows(ada, f"/runs/{waiting}/?step=0%2Fc1.0", "&quot;id&quot;: &quot;e-1&quot;")
    office.cancel(waiting, "Not needed.")
    shows(ada, waiting, "ended with the run", hides=["waits until"])


# Kill switches

WHY = {"agent": "", "reason": "The directory is <b>broken</b>."}


def test_a_stop_is_put_listed_and_lifted_over_the_api(admin_api: Caller, published: None) -> None:
    for agent, reason, field in (("stranger", "x", "agent"), ("hr_onboarding", " ", "reason")):
        answer = admin_api.post("/stops", {"agent": agent, "reason": reason})
        assert field_of(answer) == (422, field)
    stop = admin_api.post("/stops", WHY).json()
    assert (stop["agent"], stop["stopped_by"], stop["reason"]) == ("", "admin", WHY["reason"])
    assert KillSwitch.objects.get().token is not None
    assert admin_api.get("/stops").json() == [stop]
    assert admin_api.post(f"/stops/{stop['id']}/lift", {}).json()["lifted_by"] == "admin"
    assert admin_api.get("/stops").json() == []
    assert [one["id"] for one in admin_api.get("/stops?lifted=true").json()] == [stop["id"]]


def test_a_stop_is_put_on_its_page_and_shown_on_every_page(admin: Client, bea: Client) -> None:
    shows(admin, "/stops/", '<option value="" selected>Choose</option>')
    refused = admin.post("/stops/put/", {"agent": "", "reason": "typed"})
    has(text_of(refused, 422), "<bdi>Which agent</bdi> must be chosen", "typed")
    assert not KillSwitch.objects.exists()
    assert admin.post("/stops/999/lift/").status_code == 409
    refused = admin.post("/stops/put/", WHY | {"agent": "*", "confirm": "every"})
    has(
        text_of(refused, 422), "type “every agent”</bdi> here: nothing was stopped", 'value="every"'
    )
    assert not KillSwitch.objects.exists()
    admin.post("/stops/put/", WHY | {"agent": "*", "confirm": "Every agent "})
    page = shows(admin, "/inbox/", "&lt;b&gt;broken", "See the stops")
    assert "Every agent is stopped" in " ".join(page.replace("<bdi>", "").split())
    shows(bea, "/inbox/", "is stopped", hides=["See the stops"])
    admin.post(f"/stops/{KillSwitch.objects.get().id}/lift/")
    shows(bea, "/inbox/", hides=["is stopped"])


@pytest.mark.django_db
def test_agents_are_stopped_from_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="name one agent, or give --all"):
        call_command("kill_switch", "engage", "--reason", "x")
    with pytest.raises(CommandError, match="no agent named stranger"):
        call_command("kill_switch", "engage", "stranger", "--reason", "x")
    call_command("kill_switch", "engage", "--all", "--reason", "x")
    call_command("kill_switch", "list")
    stop = KillSwitch.objects.get()
    assert (stop.agent, stop.stopped_by) == ("", None)
    call_command("kill_switch", "disengage", str(stop.id))
    said = capsys.readouterr().out
    assert said.count("every agent\tthe command line") == 2
    assert "Disengaged: every agent" in said
