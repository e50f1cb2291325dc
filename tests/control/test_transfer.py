"""Transfer of a run to another installation: its contents, the repeated requests, and the refusals."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from django.conf import settings
from django.db import transaction

from runtime.control import verification
from runtime.control.transfer import export_run, import_run
from runtime.core.documents import export_file
from runtime.core.documents.compression import plain_text
from runtime.core.enums import Verdict
from runtime.errors import GateNotOpen, NotAtRest, NotImportable, RunEnded, TooLarge
from runtime.keyring import files, purposes
from runtime.models import Continuation, Gate, JournalEntry, Run
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.effects import ToolResult
from runtime.queries.journal import stored
from runtime.store import pool
from tests.support.engine import MakeBench, Rig, bodies, cancel, pause
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.forged_exports import Sender

EVE, IVY = Actor(person="eve"), Actor(person="ivy")
GATED = FakeTool(gated=True)
BIG = FakeTool(body=lambda request: ToolResult(value="x" * 100_000))
SEALED = {"password": {"$secret": "0badcafe:dG9rZW4="}}


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    agents = {"a": turns(ask(("send", {}), ("read", {})), ask(("pay", {})), say("done"))}
    return rig(agents, send=FakeTool(), read=BIG, pay=GATED)


@pytest.fixture(autouse=True)
def every_agent_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring.catalogue(), "check_input", lambda agent, value: None)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[UUID], None]]:
    """Make this another installation, with keys of its own, that does not know the run and lists our key."""

    def move(run: UUID) -> None:
        with pool.own() as own:
            for table in ("continuation", "gate", "signal", "contentuse", "journalentry"):
                own.execute(f"DELETE FROM runtime_{table} WHERE run_id = %s", (run,))
            own.execute("DELETE FROM runtime_run WHERE id = %s", (run,))
            own.execute("DELETE FROM runtime_content")
        ours = Path(settings.KEYS_DIR) / "exports.public"
        (tmp_path / "ours.public").write_text(ours.read_text())
        monkeypatch.setattr(settings, "IMPORT_KEYS", (tmp_path / "ours.public",))
        monkeypatch.setattr(settings, "KEYS_DIR", tmp_path / "keys")
        files._ring.cache_clear()
        for purpose in purposes.PURPOSES:
            files.ensure(purpose)

    yield move
    files._ring.cache_clear()


def export(run: UUID) -> str:
    return export_run(run=run, actor=EVE)


def imported(text: str) -> UUID:
    return import_run(data=text.encode(), actor=IVY)


def sound(run: UUID) -> bool:
    assert verification.verify(run).findings == ()
    return True


def test_an_export_ends_the_run_and_closes_its_gates(desk: Rig, continued: None) -> None:
    run = desk.advance(desk.start("a"))
    (gate,) = desk.open_gates(run.id)
    assert export(run.id) == export(run.id)
    assert [note[2] for note in desk.approvals.notes] == ["exported", "exported"]
    after = Run.objects.get(id=run.id)
    assert (after.status, after.due_at, after.position) == ("exported", None, run.position + 1)
    assert after.ended_at is not None
    assert not Continuation.objects.filter(run=run).exists()
    assert (Gate.objects.get(id=gate.id).state, desk.approvals.closed) == ("closed", [gate.id])
    assert sound(run.id)
    assert desk.advance(run.id).position == after.position
    with pytest.raises((GateNotOpen, RunEnded)):
        desk.decide(gate.id, Verdict.APPROVE)
    with pytest.raises(RunEnded), transaction.atomic():
        cancel(run.id, "too late")


def test_a_run_goes_on_elsewhere_and_is_asked_about_again(
    desk: Rig, elsewhere: Callable[[UUID], None]
) -> None:
    run = desk.advance(desk.start("a", {"n": 1})).id
    before = desk.open_gates(run)[0].id
    pause(run, "moving")
    assert desk.advance(run).status == "paused"
    assert sound(run)
    text = export(run)
    theirs = {mac for *_, mac in stored(JournalEntry.objects.filter(run_id=run))}
    elsewhere(run)
    assert imported(text) == run
    ours = JournalEntry.objects.filter(run_id=run).order_by("position")
    assert not theirs & {mac for *_, mac in stored(ours)}
    *entries, last = bodies(ours)
    assert tuple(entries) == export_file.decode(text).entries
    assert {json.loads(entry)["schema"] for entry in entries} == {5}  # in full, for its reader
    (event,) = json.loads(plain_text(last))["events"]
    assert (event["type"], event["by"]) == ("Imported", "ivy")
    assert event["manifest"] == export_file.decode(text).manifest
    row = Run.objects.get(id=run)
    assert (row.requester, row.status, json.loads(row.input)) == ("ivy", "queued", {"n": 1})
    assert sound(run)
    assert desk.advance(run).status == "suspended"
    (gate,) = desk.open_gates(run)
    assert gate.id != before
    assert desk.approvals.snapshots[-1].requester == "ivy"
    desk.decide(gate.id, Verdict.APPROVE)
    ended = desk.advance(run)
    assert (ended.status, ended.output) == ("completed", '"done"')
    assert sorted(call.tool for call in desk.effects.calls) == ["pay", "read", "send"]
    results = desk.effects.models[-1].messages[2]["results"]
    assert results[1]["content"] == "x" * 100_000
    assert sound(run)


def test_only_a_run_that_waits_and_has_nothing_to_take_up_leaves(
    desk: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued = desk.start("a")
    with pytest.raises(NotAtRest):
        export(queued)
    run = desk.advance(queued).id
    desk.decide(desk.open_gates(run)[0].id, Verdict.APPROVE)
    with pytest.raises(NotAtRest):
        export(run)
    assert Run.objects.get(id=run).status == "suspended"
    assert desk.advance(run).status == "completed"
    with pytest.raises(RunEnded):
        export(run)
    other = desk.advance(desk.start("a")).id
    Run.objects.filter(id=other).update(owner=other)
    with pytest.raises(NotAtRest):
        export(other)
    Run.objects.filter(id=other).update(owner=None)
    monkeypatch.setattr(export_file, "MAX_BYTES", 100)
    with pytest.raises(TooLarge):
        export(other)
    assert Run.objects.get(id=other).status == "suspended", "it is too large to be imported"


def test_an_import_requires_the_keys_of_sealed_secrets(
    rig: MakeBench, elsewhere: Callable[[UUID], None]
) -> None:
    desk = rig({"a": turns(ask(("pay", SEALED)), say("done"))}, pay=GATED)
    run = desk.advance(desk.start("a")).id
    text = export(run)
    assert export_file.check(export_file.decode(text))[0].secrets == ("0badcafe",)
    elsewhere(run)
    with pytest.raises(NotImportable, match="secrets sealed with key '0badcafe'"):
        imported(text)
    assert not Run.objects.exists()
    ring = Path(settings.KEYS_DIR) / "secrets.keys"
    ring.write_text(f"{ring.read_text()}0badcafe:{'00' * 32}\n")
    assert imported(text) == run


def test_an_import_is_checked_against_its_signature(
    desk: Rig, elsewhere: Callable[[UUID], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = desk.advance(desk.start("a")).id
    text = export(run)
    elsewhere(run)
    sender = Sender(tmp_path)
    monkeypatch.setattr(settings, "IMPORT_KEYS", (sender.file,))
    wrong = sender.send(
        text, run=run, manifest=lambda document: document.update(entries="sha256:0")
    )
    signed = export_file.check(export_file.decode(text))
    with monkeypatch.context() as blind:
        blind.setattr(export_file, "check", lambda package: signed)
        imported(wrong)
    found = verification.verify(run).findings
    assert [finding.subject for finding in found] == ["origin"]
