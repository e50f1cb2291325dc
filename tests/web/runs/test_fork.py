"""Forking a run on the page and over the API, and the page of a fork."""

from datetime import timedelta
from uuid import UUID, uuid4

from django.test import Client
from django.utils import timezone

from approvals.audit import verify
from approvals.models import AuditEntry, Request
from runtime.control.fork import fork
from runtime.core.enums import EffectClass
from runtime.models import Run
from runtime.ports.access import Actor
from tests.support.api_client import Caller
from tests.support.fake_ports import (
    FakeTool,
    ask,
    say,
    turns,
)
from tests.support.office import Office


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def test_the_fork_page_warns_of_repeated_calls(ada: Client, office: Office) -> None:
    run = office.start()
    gated = Run.objects.get(id=run).position
    office.approve(run)
    text = page(ada, f"/runs/{run}/fork/{gated}/")
    again = text.partition('id="again"')[2].partition('id="asked"')[0]
    assert "set_privileges" in again
    assert "send_welcome_mail" in again
    assert "create_account" not in again
    asked = text.partition('id="asked"')[2].partition('id="kept"')[0]
    assert "set_privileges" in asked
    assert "create_account" in text.partition('id="kept"')[2]


def test_the_fork_page_explains_waiting_and_in_doubt_calls(ada: Client, office: Office) -> None:
    doubtful = office.in_doubt()
    until = (timezone.now() + timedelta(days=2)).isoformat()
    office.effects.agents["hr_onboarding"] = turns(
        ask(("sleep_until", {"moment": until})), say("done")
    )
    office.effects.tools["sleep_until"] = FakeTool(effect=EffectClass.READ, waits="time")
    waiting = office.start()
    told = _asked(ada, waiting)
    assert "waited, and starts to wait again" in told
    assert "approvals are not copied" not in told
    assert "was in doubt" in _asked(ada, doubtful)


def _asked(client: Client, run: UUID) -> str:
    """The texts of the fork page about calls open at the last entry."""
    text = page(client, f"/runs/{run}/fork/{Run.objects.get(id=run).position}/")
    return text.partition('id="asked"')[2].partition('id="kept"')[0]


def test_a_fork_asks_again_and_the_original_stays_open(ada: Client, office: Office) -> None:
    run = office.start(key="k-1")
    position = Run.objects.get(id=run).position
    answer = ada.post(f"/runs/{run}/fork/{position}/")
    assert answer.status_code == 302
    new = UUID(answer["Location"].strip("/").split("/")[1])
    office.advance(new)
    assert Request.objects.filter(run__in=[run, new], status="pending").count() == 2
    assert office.approve(run).status == "completed"
    assert office.approve(new).status == "completed"
    assert [call.tool for call in office.effects.calls if call.run == new] == [
        "set_privileges",
        "send_welcome_mail",
    ]
    assert Run.objects.get(id=new).business_key is None
    acts = AuditEntry.objects.filter(actor="ada").values_list("run", "act")
    assert set(acts) == {(run, "forked"), (new, "started")}
    assert verify(run)
    assert verify(new)


def test_a_fork_is_read_as_any_run_and_names_its_original(ada: Client, office: Office) -> None:
    run = office.start()
    ada.post(f"/runs/{run}/fork/{Run.objects.get(id=run).position}/")
    new = Run.objects.exclude(id=run).get().id
    for advanced in (False, True):
        if advanced:
            office.advance(new)
            office.approve(new)
        for tab in ("timeline", "transcript"):
            text = page(ada, f"/runs/{new}/?tab={tab}")
            assert f'href="/runs/{run}/"' in text
            assert "set_privileges" in text
    assert "create_account" in page(ada, f"/runs/{new}/?tab=transcript")
    assert page(ada, f"/runs/{new}/cancel/")


def test_an_entry_that_cannot_be_forked_offers_the_nearest_ones(
    ada: Client, office: Office
) -> None:
    run = office.start()
    office.approve(run)
    last = Run.objects.get(id=run).position
    text = page(ada, f"/runs/{run}/fork/{last}/")
    assert "This entry cannot be forked" in text
    assert "Create fork" not in text
    assert ada.post(f"/runs/{run}/fork/{last}/").status_code == 409
    assert Run.objects.count() == 1
    newest = ada.get(f"/runs/{run}/fork/")
    assert newest.status_code == 302
    assert newest["Location"] != f"/runs/{run}/fork/{last}/"
    assert "Create fork" in page(ada, newest["Location"])
    assert f'href="{newest["Location"]}"' in text
    for nowhere in (0, last + 1, 10**30):
        assert ada.get(f"/runs/{run}/fork/{nowhere}/").status_code == 404
        assert ada.post(f"/runs/{run}/fork/{nowhere}/").status_code == 404


def test_a_reader_without_permission_to_fork_is_told(
    bea: Client, office: Office, suspended: UUID
) -> None:
    assert "You may not fork this run" in page(bea, f"/runs/{suspended}/fork/1/")
    assert "an entry of this one" not in page(bea, f"/runs/{suspended}/")
    assert bea.post(f"/runs/{suspended}/fork/1/").status_code == 403
    assert Run.objects.count() == 1


def test_forking_by_the_api(
    ada_api: Caller, bea_api: Caller, admin_api: Caller, office: Office, suspended: UUID
) -> None:
    answer = admin_api.post(f"/runs/{suspended}/fork", {"position": 1})
    assert answer.status_code == 201
    new = answer.json()
    assert (new["requester"], new["status"], new["business_key"]) == ("admin", "queued", None)
    assert ada_api.post(f"/runs/{suspended}/fork", {"position": 1}).status_code == 201
    refused = bea_api.post(f"/runs/{suspended}/fork", {"position": 1})
    assert (refused.status_code, refused.json()["code"]) == (403, "not_eligible")
    assert ada_api.post(f"/runs/{uuid4()}/fork", {"position": 1}).status_code == 404
    for wrong in (0, -1, 10**30, "1", 1.5, True, None):
        answer = ada_api.post(f"/runs/{suspended}/fork", {"position": wrong})
        assert (answer.status_code, answer.json()["field"]) == (422, "position"), wrong
    assert ada_api.post(f"/runs/{suspended}/fork", {"position": 1, "x": 1}).status_code == 422


def test_the_api_refuses_an_entry_that_nothing_can_go_on_from(
    ada_api: Caller, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    last = Run.objects.get(id=suspended).position
    answer = ada_api.post(f"/runs/{suspended}/fork", {"position": last})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_quiescent")
    Run.objects.filter(id=suspended).update(position=last + 1)
    answer = ada_api.post(f"/runs/{suspended}/fork", {"position": last + 1})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_the_page_of_a_fork_names_who_decides_nothing(bea: Client, office: Office) -> None:
    run = office.start()
    new = fork(run=run, position=Run.objects.get(id=run).position, actor=Actor(person="admin"))
    office.advance(new)
    for address in (f"/a/{office.request(new).id}/", f"/runs/{new}/"):
        text = page(bea, address).partition("Cannot decide here")[2].partition("</dd>")[0]
        assert "<bdi>ada</bdi>" in text
        assert "<bdi>admin</bdi>" in text
