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
from tests.support.api_client import Caller, code_of, field_of
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import Office
from tests.support.pages import has, shows, text


def _parts(client: Client, run: UUID, position: int | None = None) -> list[str]:
    """What the fork page says of calls that run again, that are asked about again, and that are kept."""
    position = position or Run.objects.get(id=run).position
    page = text(client, f"/runs/{run}/fork/{position}/")
    places = [page.find(f'id="{name}"') for name in ("again", "asked", "kept")]
    return [page[start:end] for start, end in zip(places, [*places[1:], len(page)], strict=True)]


def test_the_fork_page_warns_of_repeated_calls(ada: Client, office: Office) -> None:
    run = office.start()
    gated = Run.objects.get(id=run).position
    office.approve(run)
    again, asked, kept = _parts(ada, run, gated)
    has(again, "set_privileges", "send_welcome_mail", hides=["create_account"])
    has(asked, "set_privileges")
    has(kept, "create_account")


def test_the_fork_page_explains_waiting_and_in_doubt_calls(ada: Client, office: Office) -> None:
    doubtful = office.in_doubt()
    until = (timezone.now() + timedelta(days=2)).isoformat()
    sleep = ask(("sleep_until", {"moment": until}))
    office.effects.agents["hr_onboarding"] = turns(sleep, say("done"))
    office.effects.tools["sleep_until"] = FakeTool(effect=EffectClass.READ, waits="time")
    told = _parts(ada, office.start())[1]
    has(told, "waited, and starts to wait again", hides=["approvals are not copied"])
    has(_parts(ada, doubtful)[1], "was in doubt")


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


def test_a_fork_is_read_as_any_run_and_names_its_original(
    ada: Client, office: Office, suspended: UUID
) -> None:
    ada.post(f"/runs/{suspended}/fork/{Run.objects.get(id=suspended).position}/")
    new = Run.objects.exclude(id=suspended).get().id
    for advanced in (False, True):
        if advanced:
            office.advance(new)
            office.approve(new)
        for tab in ("timeline", "transcript"):
            original = f'href="/runs/{suspended}/"'
            shows(ada, f"/runs/{new}/?tab={tab}", original, "set_privileges")
    shows(ada, f"/runs/{new}/?tab=transcript", "create_account")
    text(ada, f"/runs/{new}/cancel/")


def test_an_entry_that_cannot_be_forked_offers_the_nearest_ones(
    ada: Client, office: Office, suspended: UUID
) -> None:
    path, last = f"/runs/{suspended}/fork/", office.approve(suspended).position
    assert ada.post(f"{path}{last}/").status_code == 409
    assert Run.objects.count() == 1
    newest = ada.get(path)
    assert newest.status_code == 302
    assert newest["Location"] != f"{path}{last}/"
    offer = f'href="{newest["Location"]}"'
    shows(ada, f"{path}{last}/", "This entry cannot be forked", offer, hides=["Create fork"])
    shows(ada, newest["Location"], "Create fork")
    for nowhere in (0, last + 1, 10**30):
        text(ada, f"{path}{nowhere}/", 404)
        assert ada.post(f"{path}{nowhere}/").status_code == 404


def test_a_reader_without_permission_to_fork_is_told(bea: Client, suspended: UUID) -> None:
    shows(bea, f"/runs/{suspended}/fork/1/", "You may not fork this run")
    shows(bea, suspended, hides=["an entry of this one"])


def test_forking_by_the_api(
    ada_api: Caller, bea_api: Caller, admin_api: Caller, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/fork"
    answer = admin_api.post(path, {"position": 1})
    assert answer.status_code == 201
    new = answer.json()
    assert (new["requester"], new["status"], new["business_key"]) == ("admin", "queued", None)
    assert code_of(bea_api.post(path, {"position": 1})) == (403, "not_eligible")
    assert ada_api.post(f"/runs/{uuid4()}/fork", {"position": 1}).status_code == 404
    for wrong in (0, -1, 10**30, "1", 1.5, True, None):
        assert field_of(ada_api.post(path, {"position": wrong})) == (422, "position"), wrong
    last = office.approve(suspended).position
    assert code_of(ada_api.post(path, {"position": last})) == (409, "not_quiescent")
    Run.objects.filter(id=suspended).update(position=last + 1)
    assert code_of(ada_api.post(path, {"position": last + 1})) == (404, "not_found")


def test_the_page_of_a_fork_names_who_decides_nothing(bea: Client, office: Office) -> None:
    run = office.start()
    new = fork(run=run, position=Run.objects.get(id=run).position, actor=Actor(person="admin"))
    office.advance(new)
    for place in (office.request(new), new):
        page = text(bea, place).partition("Cannot decide here")[2].partition("</dd>")[0]
        has(page, "<bdi>ada</bdi>", "<bdi>admin</bdi>")
