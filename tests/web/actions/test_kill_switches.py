"""Kill switches on the page, over the API and by command."""

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from runtime.models import KillSwitch
from tests.support.api_client import Caller, field_of
from tests.support.pages import has, shows, text, text_of

WHY = {"agent": "", "reason": "The directory is <b>broken</b>."}


def test_a_stop_is_put_listed_and_lifted_over_the_api(admin_api: Caller, published: None) -> None:
    for agent, reason, field in (
        ("stranger", "x", "agent"),
        (7, "x", "agent"),
        ("hr_onboarding", " ", "reason"),
    ):
        answer = admin_api.post("/stops", {"agent": agent, "reason": reason})
        assert field_of(answer) == (422, field)
    stop = admin_api.post("/stops", WHY).json()
    assert (stop["agent"], stop["stopped_by"], stop["reason"]) == ("", "admin", WHY["reason"])
    assert KillSwitch.objects.get().token is not None
    assert admin_api.get("/stops").json() == [stop]
    assert admin_api.post(f"/stops/{stop['id']}/lift", {}).json()["lifted_by"] == "admin"
    assert admin_api.get("/stops").json() == []
    assert [one["id"] for one in admin_api.get("/stops?lifted=true").json()] == [stop["id"]]


def test_every_page_shows_stopped_agents_with_escaped_text(admin: Client, bea: Client) -> None:
    admin.post("/stops/put/", WHY | {"agent": "*"})
    page = shows(admin, "/inbox/", "&lt;b&gt;broken", "See the kill switches")
    assert "Every agent is stopped" in " ".join(page.replace("<bdi>", "").split())
    shows(bea, "/inbox/", "is stopped", hides=["See the kill switches"])
    admin.post(f"/stops/{KillSwitch.objects.get().id}/lift/")
    text(admin, "/inbox/")  # consumes the toast
    shows(admin, "/inbox/", hides=["is stopped"])


def test_a_refused_form_keeps_the_typed_text(admin: Client) -> None:
    shows(admin, "/stops/", '<option value="">Choose</option>')
    unknown = admin.post("/stops/put/", {"agent": "stranger", "reason": "typed"})
    has(text_of(unknown, 422), "typed")
    none = admin.post("/stops/put/", {"agent": "", "reason": "because"})
    has(text_of(none, 422), "Choose an agent, or every agent")
    assert not KillSwitch.objects.exists()
    assert admin.post("/stops/999/lift/").status_code == 409


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
    assert "Goes on: every agent" in said
