"""Export and import of a run over the API, and on its page."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from django.test import Client
from pytest_django import Settings

from runtime.core.documents import export_file
from tests.support.api_client import Caller, code_of
from tests.support.forged_exports import Sender
from tests.support.office import Office
from tests.support.pages import shows, text


@pytest.fixture
def sender(tmp_path: Path, settings: Settings, published: None) -> Sender:
    """Another installation, whose exports this one imports."""
    sender = Sender(tmp_path)
    settings.IMPORT_KEYS = (sender.file,)
    return sender


def test_a_run_is_exported_and_imported_by_the_api(
    admin_api: Caller, admin: Client, office: Office, suspended: UUID, sender: Sender
) -> None:
    answer = admin_api.post(f"/runs/{suspended}/export", {})
    assert answer.status_code == 200
    assert answer["Content-Disposition"] == f'attachment; filename="{suspended}.json"'
    file = answer.content.decode()
    assert export_file.check(export_file.decode(file))[0].run == suspended
    assert admin_api.post(f"/runs/{suspended}/export", {}).content == answer.content
    known = admin_api.send("/imports", sender.send(file, run=suspended))
    assert code_of(known) == (409, "run_known")
    arrived = admin_api.send("/imports", sender.send(file))
    assert arrived.status_code == 201
    new = arrived.json()
    assert (new["requester"], new["status"], new["gates"]) == ("admin", "queued", [])
    for status in ("queued", "suspended"):
        if status == "suspended":
            assert office.advance(UUID(new["id"])).status == status
        for run, said in ((suspended, "Exported"), (new["id"], "Imported by")):
            for tab in ("timeline", "transcript", "state"):
                shows(admin, f"/runs/{run}/?tab={tab}", said)
    text(admin, f"/runs/{suspended}/cancel/")
    shows(admin, "/runs/?status=exported", "Exported")
    assert office.approve(UUID(new["id"])).status == "completed"


def test_the_api_says_why_not(admin_api: Caller, ada_api: Caller, office: Office) -> None:
    queued = f"/runs/{office.start(advanced=False)}/export"
    assert code_of(admin_api.post(queued, {})) == (409, "not_at_rest")
    run = office.start()
    assert code_of(ada_api.post(f"/runs/{run}/export", {})) == (403, "not_eligible")
    office.approve(run)
    assert code_of(admin_api.post(f"/runs/{run}/export", {})) == (409, "run_ended")
    for body in (b"", b"\xff", b"{}", json.dumps({"format": "other"}).encode()):
        assert code_of(admin_api.send("/imports", body)) == (422, "not_importable"), body
    assert admin_api.send("/imports", b" " * (2 * 1024 * 1024 + 1)).status_code == 413
    assert ada_api.send("/imports", b"{}").status_code == 403
