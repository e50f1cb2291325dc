"""Kill switches on the page, over the API and by command."""

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from runtime.models import Stop
from tests.support.api_client import Caller
from tests.support.cast import Cast

WHY = {"agent": "", "reason": "The directory is <b>broken</b>."}


def test_a_stop_is_put_listed_and_lifted_over_the_api(admin_api: Caller) -> None:
    put = admin_api.post("/stops", WHY)
    assert put.status_code == 201
    stop = put.json()
    assert (stop["agent"], stop["stopped_by"], stop["reason"]) == ("", "admin", WHY["reason"])
    assert Stop.objects.get().token is not None
    again = admin_api.post("/stops", WHY)
    assert (again.status_code, again.json()["code"]) == (409, "stopped_already")
    assert admin_api.get("/stops").json() == [stop]
    lifted = admin_api.post(f"/stops/{stop['id']}/lift", {})
    assert (lifted.status_code, lifted.json()["lifted_by"]) == (200, "admin")
    assert admin_api.get("/stops").json() == []
    assert [one["id"] for one in admin_api.get("/stops?lifted=true").json()] == [stop["id"]]
    late = admin_api.post(f"/stops/{stop['id']}/lift", {})
    assert (late.status_code, late.json()["code"]) == (409, "stop_not_on")


def test_an_invalid_kill_switch_names_the_field(admin_api: Caller, published: None) -> None:
    for body, field in (
        ({"agent": "stranger", "reason": "x"}, "agent"),
        ({"agent": 7, "reason": "x"}, "agent"),
        ({"agent": "hr_onboarding", "reason": " "}, "reason"),
    ):
        answer = admin_api.post("/stops", body)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert not Stop.objects.exists()


def test_every_page_shows_stopped_agents_with_escaped_text(cast: Cast) -> None:
    client = Client()
    client.force_login(cast.admin)
    client.post("/stops/put/", WHY | {"agent": "*"})
    page = client.get("/inbox/").content.decode()
    assert "Every agent are stopped" not in page
    assert "Every agent is stopped" in " ".join(page.replace("<bdi>", "").split())
    assert "&lt;b&gt;broken" in page
    assert "See the kill switches" in page
    other = Client()
    other.force_login(cast.bea)
    seen = other.get("/inbox/").content.decode()
    assert "is stopped" in seen
    assert "See the kill switches" not in seen
    client.post(f"/stops/{Stop.objects.get().id}/lift/")
    client.get("/inbox/")  # consumes the toast
    assert "is stopped" not in client.get("/inbox/").content.decode()


def test_a_refused_form_keeps_the_typed_text(cast: Cast) -> None:
    client = Client()
    client.force_login(cast.admin)
    answer = client.post("/stops/put/", {"agent": "stranger", "reason": "typed"})
    assert answer.status_code == 422
    assert "typed" in answer.content.decode()
    assert client.post("/stops/put/", {"agent": "*", "reason": ""}).status_code == 422
    assert client.post("/stops/999/lift/").status_code == 409


def test_stopping_every_agent_has_to_be_chosen(cast: Cast) -> None:
    client = Client()
    client.force_login(cast.admin)
    page = client.get("/stops/").content.decode()
    assert '<option value="">Choose</option>' in page
    answer = client.post("/stops/put/", {"agent": "", "reason": "because"})
    assert answer.status_code == 422
    assert "Choose an agent, or every agent" in answer.content.decode()
    assert not Stop.objects.exists()
    client.post("/stops/put/", {"agent": "*", "reason": "because"})
    assert Stop.objects.get().agent == ""


@pytest.mark.django_db
def test_agents_are_stopped_from_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="name one agent, or give --all"):
        call_command("stops", "put", "--reason", "x")
    with pytest.raises(CommandError, match="no agent named stranger"):
        call_command("stops", "put", "stranger", "--reason", "x")
    call_command("stops", "put", "--all", "--reason", "x")
    call_command("stops", "list")
    stop = Stop.objects.get()
    assert stop.stopped_by is None
    call_command("stops", "lift", str(stop.id))
    said = capsys.readouterr().out
    assert said.count("every agent\tthe command line") == 2
    assert "Goes on: every agent" in said
