"""Files that pretend to be exported runs: each is refused in one line, and nothing of it is written."""

import json
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agents.models import PublishedAgent
from approvals.models import Approval, AuditEntry
from runtime.control.transfer import export_run, import_run
from runtime.core.documents import export_file
from runtime.core.documents.codec import SCHEMA
from runtime.errors import NotImportable, RunKnown
from runtime.models import JournalEntry, Run
from runtime.ports.access import Actor
from tests.support.commands import tried
from tests.support.forged_exports import Sender, uuid7
from tests.support.office import Target
from tests.support.seeds import published

ADMIN = Actor(person="admin")


@pytest.fixture
def sender(tmp_path: Path, settings: Settings, db: None) -> Sender:
    """Another installation whose key is listed here, where the agent of these runs is known."""
    published(input_schema={})
    sender = Sender(tmp_path)
    settings.IMPORT_KEYS = (tmp_path,)
    return sender


@pytest.fixture
def parcel(target: Target) -> str:
    """The file of a run that was exported here."""
    return export_run(run=target.start(), actor=ADMIN)


def imported(text: str) -> Any:
    return import_run(data=text.encode(), actor=ADMIN)


def loaded(text: str, **changes: Any) -> str:
    """The file with other values, signed or not."""
    return json.dumps({**json.loads(text), **changes})


def refused(text: str) -> str:
    """Why it is not taken over, in one line, with nothing written."""
    before = (Run.objects.count(), JournalEntry.objects.count(), AuditEntry.objects.count())
    with pytest.raises(NotImportable) as raised:
        imported(text)
    assert (Run.objects.count(), JournalEntry.objects.count(), AuditEntry.objects.count()) == before
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_an_approval_before_the_export_is_worth_nothing(target: Target, sender: Sender) -> None:
    target.ask_twice()
    run = target.decided()
    assert target.advance(run).status == "suspended"
    assert target.started(run) == 1
    text = export_run(run=run, actor=ADMIN)
    assert set(Approval.objects.filter(run=run).values_list("status", flat=True)) == {
        "approved",
        "cancelled",
    }
    new = imported(sender.send(text))
    target.advance(new)
    assert Approval.objects.filter(run=new, status="pending").count() == 1
    acts = AuditEntry.objects.filter(run=new).order_by("seq").values_list("act", "actor")
    assert list(acts) == [("imported", "admin"), ("requested", None)]
    assert target.started(new) == 0
    target.decide(new)
    assert target.advance(new).status == "completed"
    assert target.started(new) == 1


def test_a_tampered_file_is_refused(sender: Sender, parcel: str) -> None:
    sent = sender.send(parcel)
    manifest, signature = json.loads(sent)["manifest"], json.loads(sender.send(parcel))["signature"]
    newer = sender.send(parcel, manifest=lambda it: it.update(schema=SCHEMA + 1))
    unverified = "its signature does not verify"
    for name, text, why in (
        ("an edited entry", sent.replace("newhire", "mallory", 1), "differ from the signed ones"),
        ("a truncated file", sent[:-100], "it is not JSON"),
        ("a signature that is none", loaded(sent, signature="zz"), unverified),
        ("the signature of another file", loaded(sent, signature=signature), unverified),
        ("an edited manifest", loaded(sent, manifest=manifest.replace("ada", "eve")), unverified),
        ("a newer manifest", newer, "is newer than this version reads"),
        (
            "an id from the future",
            sender.send(parcel, run=uuid7(3 * 86_400)),
            "its id is not valid",
        ),
    ):
        assert why in refused(text), name


def test_a_key_that_is_not_listed_is_refused(
    target: Target, sender: Sender, parcel: str, tmp_path: Path, settings: Settings
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    stranger = Sender(folder, "stranger")
    assert "key 'stranger' is not among those" in refused(stranger.send(parcel))
    namesake = Sender(folder, sender.key_id)
    assert "its signature does not verify" in refused(namesake.send(parcel))
    assert "is not among those" in refused(parcel)  # our own key is not listed either
    settings.IMPORT_KEYS = ()
    assert "is not among those" in refused(sender.send(parcel))


def test_a_run_is_imported_once_not_at_home(target: Target, sender: Sender, parcel: str) -> None:
    text = sender.send(parcel)
    run = imported(text)
    for again in (text, sender.send(parcel, run=run)):
        with pytest.raises(RunKnown):
            imported(again)
    assert Run.objects.filter(id=run).count() == 1
    left = export_file.check(export_file.decode(parcel))[0].run
    with pytest.raises(RunKnown):
        imported(sender.send(parcel, run=left))


def test_an_unknown_agent_or_a_large_file_is_not_imported(
    target: Target, sender: Sender, parcel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    PublishedAgent.objects.all().delete()
    assert refused(sender.send(parcel)) == "there is no agent 'hr_onboarding' here"
    monkeypatch.setattr(export_file, "MAX_BYTES", 1_000)
    assert refused(sender.send(parcel)) == "it is larger than 1000 bytes"


def test_a_run_leaves_and_comes_by_command(target: Target, sender: Sender, tmp_path: Path) -> None:
    run, file = target.start(), tmp_path / "run.json"
    refusal = tried("export_run", run, file, "--as", "bea")[1]
    assert (refusal, file.exists()) == ("Only admins may export runs.", False)
    said, error = tried("export_run", run, file, "--as", "admin")
    assert (said, error) == (f"Run {run} is exported to {file}.\n", "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert tried("export_run", run, file, "--as", "admin")[1] == f"{file} exists already"
    assert tried("import_run", file, "--as", "admin")[1].startswith("not imported: key")
    file.write_text(sender.send(file.read_text()))
    assert tried("import_run", file, "--as", "ada")[1] != ""
    said, error = tried("import_run", file, "--as", "admin")
    assert (said.endswith("continues here.\n"), error) == (True, "")
    assert "cannot be read" in tried("import_run", tmp_path / "none", "--as", "admin")[1]
