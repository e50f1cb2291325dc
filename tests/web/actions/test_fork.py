"""Forking, exporting and importing a run, on pages and over the API."""

from datetime import timedelta
from pathlib import Path
from uuid import UUID

from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from runtime.core.documents import export_file
from runtime.core.enums import EffectClass
from runtime.models import Run
from tests.support.api_client import Caller, code_of, field_of
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.forged_exports import Sender
from tests.support.office import Office
from tests.support.pages import has, shows, text


def _parts(client: Client, run: UUID, position: int | None = None) -> list[str]:
    """What the fork page says of calls that run again, that are asked about again, and that are kept."""
    position = position or Run.objects.get(id=run).position
    page = text(client, f"/runs/{run}/fork/{position}/")
    places = [page.find(f'id="{name}"') for name in ("again", "asked", "kept")]
    return [page[start:end] for start, end in zip(places, [*places[1:], len(page)], strict=True)]


def test_the_fork_page_says_what_becomes_of_each_call(ada: Client, office: Office) -> None:
    run = office.start()
    gated = Run.objects.get(id=run).position
    office.approve(run)
    again, asked, kept = _parts(ada, run, gated)
    has(again, "set_privileges", "send_welcome_mail", hides=["create_account"])
    has(asked, "set_privileges")
    has(kept, "create_account")
    has(_parts(ada, office.in_doubt())[1], "was in doubt")
    until = (timezone.now() + timedelta(days=2)).isoformat()
    sleep = ask(("sleep_until", {"moment": until}))
    office.effects.agents["hr_onboarding"] = turns(sleep, say("done"))
    office.effects.tools["sleep_until"] = FakeTool(effect=EffectClass.READ, waits="time")
    told = _parts(ada, office.start())[1]
    has(told, "waited, and starts to wait again", hides=["approvals are not copied"])


def test_an_entry_that_cannot_be_forked_offers_the_nearest_ones(
    ada: Client, bea: Client, office: Office, suspended: UUID
) -> None:
    path, last = f"/runs/{suspended}/fork/", office.approve(suspended).position
    assert ada.post(f"{path}{last}/").status_code == 409
    newest = ada.get(path)["Location"]
    assert newest != f"{path}{last}/"
    offer = f'href="{newest}"'
    shows(ada, f"{path}{last}/", "This entry cannot be forked", offer, hides=["Create fork"])
    shows(ada, newest, "Create fork")
    for nowhere in (0, last + 1, 10**30):
        text(ada, f"{path}{nowhere}/", 404)
        assert ada.post(f"{path}{nowhere}/").status_code == 404
    assert Run.objects.count() == 1
    shows(bea, f"{path}1/", "You may not fork this run")
    shows(bea, suspended, hides=["an entry of this one"])


def test_forking_by_the_api(
    admin: Client, ada_api: Caller, admin_api: Caller, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/fork"
    new = admin_api.post(path, {"position": 1}).json()
    shows(admin, f"/runs/{new['id']}/", f'href="/runs/{suspended}/"')
    assert (new["requester"], new["status"], new["business_key"]) == ("admin", "queued", None)
    for wrong in (0, -1, 10**30, "1", 1.5, True, None):
        assert field_of(ada_api.post(path, {"position": wrong})) == (422, "position"), wrong
    last = office.approve(suspended).position
    assert code_of(ada_api.post(path, {"position": last})) == (409, "not_quiescent")
    Run.objects.filter(id=suspended).update(position=last + 1)
    assert code_of(ada_api.post(path, {"position": last + 1})) == (404, "not_found")


def test_a_run_is_exported_and_imported_by_the_api(
    admin_api: Caller,
    admin: Client,
    office: Office,
    suspended: UUID,
    tmp_path: Path,
    settings: Settings,
    published: None,
) -> None:
    sender = Sender(tmp_path)  # another installation, whose exports this one imports
    settings.IMPORT_KEYS = (sender.file,)
    answer = admin_api.post(f"/runs/{suspended}/export", {})
    assert answer["Content-Disposition"] == f'attachment; filename="{suspended}.json"'
    file = answer.content.decode()
    assert export_file.check(export_file.decode(file))[0].run == suspended
    assert admin_api.post(f"/runs/{suspended}/export", {}).content == answer.content
    for refused in (b"", b"\xff", b"{}", b'{"format": "other"}'):
        assert code_of(admin_api.send("/imports", refused)) == (422, "not_importable"), refused
    arrived = admin_api.send("/imports", sender.send(file))
    assert arrived.status_code == 201
    new = arrived.json()
    assert (new["requester"], new["status"], new["gates"]) == ("admin", "queued", [])
    assert office.advance(UUID(new["id"])).status == "suspended"
    for run, said in ((suspended, "Exported"), (new["id"], "Imported by")):
        for tab in ("timeline", "transcript", "state"):
            shows(admin, f"/runs/{run}/?tab={tab}", said)
    shows(admin, "/runs/?status=exported", "Exported")
    assert office.approve(UUID(new["id"])).status == "completed"
