"""Export and import of a run over the API, and on its page."""

import json
from pathlib import Path
from uuid import UUID

from django.test import Client
from pytest_django import Settings

from runtime.core.documents import export_file
from runtime.models import Run
from tests.support.api_client import Caller
from tests.support.forged_exports import Sender
from tests.support.office import Office


def test_a_run_is_exported_and_imported_by_the_api(
    admin_api: Caller,
    office: Office,
    suspended: UUID,
    published: None,
    tmp_path: Path,
    settings: Settings,
) -> None:
    sender = Sender(tmp_path)
    settings.IMPORT_KEYS = (sender.file,)
    answer = admin_api.post(f"/runs/{suspended}/export", {})
    assert answer.status_code == 200
    assert answer["Content-Disposition"] == f'attachment; filename="{suspended}.json"'
    text = answer.content.decode()
    assert export_file.check(export_file.decode(text))[0].run == suspended
    assert admin_api.post(f"/runs/{suspended}/export", {}).content == answer.content
    arrived = admin_api.send("/imports", sender.send(text))
    assert arrived.status_code == 201
    new = arrived.json()
    assert (new["requester"], new["status"], new["gates"]) == ("admin", "queued", [])
    assert office.advance(UUID(new["id"])).status == "suspended"
    assert office.approve(UUID(new["id"])).status == "completed"


def test_the_api_says_why_not(admin_api: Caller, ada_api: Caller, office: Office) -> None:
    queued = office.start(advanced=False)
    answer = admin_api.post(f"/runs/{queued}/export", {})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_at_rest")
    run = office.start()
    assert ada_api.post(f"/runs/{run}/export", {}).json()["code"] == "not_eligible"
    office.approve(run)
    answer = admin_api.post(f"/runs/{run}/export", {})
    assert (answer.status_code, answer.json()["code"]) == (409, "run_ended")
    for body in (b"", b"\xff", b"{}", json.dumps({"format": "other"}).encode()):
        answer = admin_api.send("/imports", body)
        assert (answer.status_code, answer.json()["code"]) == (422, "not_importable"), body
    assert admin_api.send("/imports", b" " * (2 * 1024 * 1024 + 1)).status_code == 413
    assert ada_api.send("/imports", b"{}").status_code == 403


def test_a_run_that_is_here_is_not_imported(
    admin_api: Caller,
    office: Office,
    suspended: UUID,
    published: None,
    tmp_path: Path,
    settings: Settings,
) -> None:
    sender = Sender(tmp_path)
    settings.IMPORT_KEYS = (sender.file,)
    text = admin_api.post(f"/runs/{suspended}/export", {}).content.decode()
    answer = admin_api.send("/imports", sender.send(text, run=suspended))
    assert (answer.status_code, answer.json()["code"]) == (409, "run_known")
    assert Run.objects.count() == 1


def test_pages_show_runs_that_left_and_that_arrived(
    admin: Client,
    admin_api: Caller,
    office: Office,
    suspended: UUID,
    published: None,
    tmp_path: Path,
    settings: Settings,
) -> None:
    sender = Sender(tmp_path)
    settings.IMPORT_KEYS = (sender.file,)
    text = admin_api.post(f"/runs/{suspended}/export", {}).content.decode()
    new = admin_api.send("/imports", sender.send(text)).json()["id"]
    for advanced in (False, True):
        if advanced:
            office.advance(UUID(new))
        for run, said in ((suspended, "Exported"), (new, "Imported by")):
            for tab in ("timeline", "transcript", "state"):
                page = admin.get(f"/runs/{run}/?tab={tab}")
                assert page.status_code == 200
                assert said in page.content.decode()
    assert admin.get(f"/runs/{suspended}/cancel/").status_code == 200
    assert "Exported" in admin.get("/runs/?status=exported").content.decode()
