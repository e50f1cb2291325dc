"""Forged exports and archives."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pytest_django import Settings

from agents.models import PublishedAgent
from approvals.models import Approval, AuditEntry
from runtime.control import verification
from runtime.control.interventions import hold, retry
from runtime.control.transfer import export_run, import_run, restore, restore_file
from runtime.core.documents import export_file
from runtime.core.documents.codec import SCHEMA
from runtime.errors import NotArchived, NotImportable, RunKnown, Tampered
from runtime.models import ArchivedRun, JournalEntry, Run
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import objects
from runtime.upkeep import retention
from tests.support.commands import tried
from tests.support.fake_ports import ask, say, turns
from tests.support.forged_exports import Sender, uuid7
from tests.support.object_stores import Breakable
from tests.support.office import NEWCOMER, Target
from tests.support.pages import log_in, shows
from tests.support.seeds import Cast, published

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


# Archives


def archive(run: UUID) -> dict[str, Any]:
    """Archive a run, and return the row of its file."""
    assert retention.archive_run(pool.use_django_connection(), run)
    return dict(ArchivedRun.objects.values("place", "digest", "size").get(run=run))


def completed(target: Target) -> UUID:
    run = target.decided()
    assert target.advance(run).status == "completed"
    return run


def delete_dropped() -> None:
    with pool.open_own() as own:
        objects.delete_dropped(own, threading.Event())


def assert_refused(run: UUID, cast: Cast) -> None:
    """Nothing of the file is shown or restored, and `verify_run` finds it."""
    shows(log_in(cast.admin), f"/runs/{run}/", "cannot be shown")
    assert not verification.verify(run).is_consistent
    with pytest.raises(Tampered):
        restore(run=run, reason="a question", actor=ADMIN)


def put_link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name("elsewhere")))


def put_terabyte(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(2**40)  # a hole, which takes no room on the disk


def name_another_folder(path: Path) -> None:
    ArchivedRun.objects.update(place="../../etc/passwd")


@pytest.mark.parametrize("change", [put_link, put_terabyte, name_another_folder])
def test_what_cannot_be_a_file_of_the_archive_is_named_and_not_read(
    target: Target,
    object_store: Breakable,
    tmp_path: Path,
    cast: Cast,
    change: Callable[[Path], None],
) -> None:
    run = completed(target)
    change(tmp_path / "objects" / archive(run)["place"])
    assert_refused(run, cast)


def test_an_earlier_file_of_the_run_does_not_pass_for_the_last_one(
    target: Target, object_store: Breakable, cast: Cast
) -> None:
    run = target.failed()
    earlier = archive(run)
    restore(run=run, reason="a question", actor=ADMIN)
    agents = target.effects.agents
    agents["hr_onboarding"] = turns(ask(("account_agent", NEWCOMER)), say("done"))
    retry(run=run, reason="again", actor=ADMIN)
    assert target.advance(run).status == "completed"
    assert target.started(run) == 1, "the approval was used before the run was archived"
    archive(run)
    ArchivedRun.objects.filter(run=run).update(**earlier)
    assert_refused(run, cast)


def test_a_copy_of_the_file_does_not_bring_an_erased_run_back(
    target: Target, object_store: Breakable
) -> None:
    run = completed(target)
    copy = object_store.get(archive(run)["place"]) or b""
    assert retention.erase(run)
    with pytest.raises(NotArchived):
        restore_file(data=copy, reason="from a copy", actor=ADMIN)
    assert not JournalEntry.objects.filter(run_id=run).exists()


def test_a_forged_key_keeps_no_erased_file_in_the_store(
    target: Target, object_store: Breakable, caplog: pytest.LogCaptureFixture
) -> None:
    run = completed(target)
    archive(run)
    with pool.open_own() as own:
        own.execute("INSERT INTO runtime_droppedobject (place, at) VALUES ('../x', '2026-01-01')")
    assert retention.erase(run)
    delete_dropped()
    assert object_store.keys() == []
    assert "An object is not deleted, its row was changed: '../x'" in caplog.text


def lift_by_sql(run: UUID) -> None:
    Run.objects.filter(id=run).update(legal_hold=None)


def lift_with_a_row(run: UUID) -> None:
    lift_by_sql(run)
    last = AuditEntry.objects.filter(run=run).latest("seq")
    last.seq, last.act = last.seq + 1, "hold lifted"
    last.pk = None
    last.save(force_insert=True)


@pytest.mark.parametrize("forge", [lift_by_sql, lift_with_a_row])
def test_a_legal_hold_that_no_admin_lifted_holds(
    target: Target, object_store: Breakable, forge: Callable[[UUID], None]
) -> None:
    run = completed(target)
    hold(run=run, reason="lawsuit 7", actor=ADMIN)
    forge(run)
    with pytest.raises(Tampered):
        retention.erase(run)
    assert not retention.archive_run(pool.use_django_connection(), run)
    assert JournalEntry.objects.filter(run_id=run).exists()
    assert not verification.verify(run).is_consistent
