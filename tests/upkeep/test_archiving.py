"""Archived runs: one file has all of a run, Postgres has its row, and no kill in between loses a run."""

import gzip
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Q
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Approval, AuditEntry
from approvals.port.adapter import ApprovalService
from runtime.control import verification
from runtime.control.forks import fork
from runtime.control.interventions import hold, lift_hold, retry
from runtime.control.transfer import export_run, restore, restore_file
from runtime.core.documents import signed_gzip
from runtime.core.documents.blobs import hash_text
from runtime.errors import Forbidden, NotArchived, NotHeld, NotImportable, RunArchived, Tampered
from runtime.models import ArchivedRun, JournalEntry, Pruning, Run, StoredBlob
from runtime.ports.access import Actor
from runtime.reads import entries, run_rows
from runtime.reads import journal as lines
from runtime.store import archived_runs, pool, runs, sealed_files
from runtime.store.tables import blobs, objects, pruning
from runtime.upkeep import retention
from runtime.upkeep.retention_rules import parse
from tests.support.calls import around
from tests.support.object_stores import BOTH, Breakable
from tests.support.office import Target
from tests.support.threads import aside
from tests.upkeep.test_retention import ARGS, BIG, SECRET, ended, places_of

pytestmark = pytest.mark.usefixtures("object_store")
ADMIN = Actor(person="admin")


@pytest.fixture
def target(target: Target, settings: Settings) -> Target:
    target.effects.tools["create_account"] = BIG
    settings.SIGNOFF_ARCHIVE = parse("30")
    return target


def enforced() -> int:
    """Archive, and collect what no run refers to any more."""
    with pool.open_own() as own:
        done = retention.archive_old_runs(own, threading.Event())
        own.execute("UPDATE runtime_storedblob SET used_at = now() - interval '2 hours'")
        retention.enforce(own, threading.Event())
        objects.delete_dropped(own, threading.Event())
        return done


def audit_of(run: UUID) -> str:
    """The last act in the audit."""
    return AuditEntry.objects.filter(run=run).latest("seq").act


def stored_of(run: UUID) -> tuple[object, ...]:
    """Everything that the page of a run reads, and each MAC."""
    row = run_rows.with_archive(run_rows._build_detail(Run.objects.get(id=run), ()))
    return (row.input, row.output, row.reason, lines.read(run), row.position)


def record_of(store: Breakable) -> dict[str, Any]:
    """What the only file says beside the journal."""
    data = store.get(ArchivedRun.objects.get().place or "") or b""
    found: dict[str, Any] = json.loads(json.loads(gzip.decompress(data))["record"])
    return found


def forged_answer(data: bytes) -> bytes:
    """The file with another output, every digest in it right, and the head of the real one."""
    file = json.loads(gzip.decompress(data))
    record, manifest = json.loads(file["record"]), json.loads(file["manifest"])
    record["row"]["output"] = '"forged"'
    file["record"] = json.dumps(record)
    file["manifest"] = json.dumps({**manifest, "record": hash_text(file["record"])})
    body = signed_gzip.compress_body(json.dumps(file))
    head = replace(signed_gzip.decode_head(data), body=signed_gzip.hash_body(body))
    return signed_gzip.encode(head, body)


@BOTH
def test_a_run_leaves_postgres_and_its_file_has_all_of_it(
    target: Target, object_store: Breakable
) -> None:
    run, young = ended(target, key="H-1"), ended(target, days=29)
    before = stored_of(run)
    assert enforced() == 1
    assert not JournalEntry.objects.filter(run_id=run).exists()
    row = Run.objects.get(id=run)
    assert (row.input, row.output, row.business_key) == ("null", None, "H-1")
    assert stored_of(run) == before
    assert verification.verify(run).is_consistent
    assert Run.objects.get(id=young).archived_at is None
    assert StoredBlob.objects.count() == 1  # of the young one
    record = record_of(object_store)
    [request] = record["approvals"]["approvals_approval"]
    assert (request["sentence"], request["decided_by"]) == (
        Approval.objects.get(run=run).sentence,
        "bea",
    )
    assert (
        len(record["approvals"]["approvals_auditentry"])
        == AuditEntry.objects.filter(run=run).count()
    )
    assert (
        len(record["tables"]["runtime_gate"]) == len(record["tables"]["runtime_usedapproval"]) == 1
    )


def test_a_store_that_is_down_or_lies_keeps_the_run_in_postgres(
    target: Target,
    object_store: Breakable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run, _ = ended(target), ended(target)
    object_store.is_down = True
    with pool.open_own() as own:
        assert retention.archive_old_runs(own, threading.Event()) == 0
    assert caplog.text.count("Runs are archived later") == 1
    object_store.is_down = False
    ArchivedRun.objects.all().delete()
    given = object_store.get
    monkeypatch.setattr(
        object_store, "get", lambda key, **how: given(key, **how) if "contents" in key else b"x"
    )
    with pool.open_own() as own:
        assert retention.archive_old_runs(own, threading.Event()) == 0
    assert JournalEntry.objects.filter(run_id=run).exists()
    assert Run.objects.get(id=run).archived_at is None


def test_a_run_that_does_not_verify_or_is_too_large_stays_and_holds_up_no_other(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged, good = ended(target), ended(target)
    JournalEntry.objects.filter(run_id=forged, position=2).update(mac="00")
    for room, name, value in (
        (sealed_files, "MAX_BYTES", 10),
        (archived_runs, "record_file", lambda *_, **__: False),  # it was held meanwhile
    ):
        with monkeypatch.context() as patch:
            patch.setattr(room, name, value)
            assert enforced() == 0
        assert JournalEntry.objects.filter(run_id=good).exists()
        ArchivedRun.objects.all().delete()
    assert enforced() == 1
    assert JournalEntry.objects.filter(run_id=forged).exists()
    assert Run.objects.get(archived_at=None).id == forged


def test_a_restored_run_is_as_it_was_and_stays(target: Target, object_store: Breakable) -> None:
    run = ended(target)
    entries = JournalEntry.objects.filter(run_id=run).order_by("position")
    rows = list(entries.values("position", "packed", "mac", "key_id"))
    row = Run.objects.filter(id=run).values().get()
    assert enforced() == 1
    restore(run=run, reason="a question of the auditor", actor=ADMIN)
    assert list(entries.values("position", "packed", "mac", "key_id")) == rows
    assert Run.objects.filter(id=run).values().get() == row
    assert verification.verify(run).is_consistent
    assert (audit_of(run), enforced(), len(object_store.keys())) == ("restored", 0, 1)
    ArchivedRun.objects.update(at=timezone.now() - timedelta(hours=25))
    assert (enforced(), object_store.keys(), StoredBlob.objects.count()) == (0, [], 1)
    ArchivedRun.objects.update(at=timezone.now() - timedelta(days=31))
    assert enforced() == 1
    with pytest.raises(NotArchived):
        restore(run=ended(target, days=1), reason="why", actor=ADMIN)


def test_an_altered_swapped_or_missing_file_is_refused(
    target: Target, object_store: Breakable
) -> None:
    one, other = ended(target, key="1"), ended(target, key="2")
    assert enforced() == 2
    files = {row.run_id: row for row in ArchivedRun.objects.all()}
    data = {run: object_store.get(row.place or "") or b"" for run, row in files.items()}
    place = files[one].place or ""
    changes = {
        "bytes": data[one][:900] + bytes([data[one][900] ^ 1]) + data[one][901:],
        "another": data[other],
        "answer": forged_answer(data[one]),
    }
    for problem, forged in changes.items():
        object_store.put(place, forged)
        digest = f"sha256:{sha256(forged).hexdigest()}"
        (finding,) = verification.verify(one).findings
        assert "does not match its digest" in finding.problem, problem
        ArchivedRun.objects.filter(run=one).update(digest=digest)
        assert not verification.verify(one).is_consistent, problem
        with pytest.raises(Tampered):
            restore(run=one, reason="why", actor=ADMIN)
        ArchivedRun.objects.filter(run=one).update(digest=files[one].digest)
    with pytest.raises(Tampered):
        sealed_files.open_file(data[other], name=f"run {one}")
    head = Pruning.objects.get(run=one).head
    with pool.open_own() as own:
        pruning.write(own, one, position=1, head=head)
        with pytest.raises(NotImportable, match="does not end"):  # the file of an earlier archiving
            restore_file(data=data[one], reason="from a copy", actor=ADMIN)
        pruning.write(own, one, position=Run.objects.get(id=one).position, head=head)
    object_store.delete(place)
    assert "missing" in verification.verify(one).findings[0].problem
    with pytest.raises(NotImportable):
        restore_file(data=b"PK\x03\x04", reason="from a copy", actor=ADMIN)
    assert restore_file(data=data[one], reason="from a copy", actor=ADMIN) == one
    assert verification.verify(one).is_consistent
    with pytest.raises(NotArchived):
        restore_file(data=data[one], reason="again", actor=ADMIN)


def test_a_hold_keeps_a_run_where_it_is_until_it_is_lifted(
    target: Target, settings: Settings, object_store: Breakable
) -> None:
    run, archived = ended(target), ended(target)
    settings.SIGNOFF_RETENTION = parse("never")
    hold(run=run, reason="lawsuit 7", actor=ADMIN)
    assert enforced() == 1
    with pool.open_own() as own:
        assert not retention.archive_run(own, run), "the hold came after it was listed"
    ArchivedRun.objects.filter(run=run).delete()
    hold(run=archived, reason="lawsuit 7", actor=ADMIN)
    settings.SIGNOFF_RETENTION = parse("30")
    assert enforced() == 0
    assert not retention.erase(run)
    assert stored_of(archived)[0] == stored_of(run)[0] != None  # noqa: E711
    assert audit_of(run) == audit_of(archived) == "held"
    for one in (run, archived):
        lift_hold(run=one, reason="settled", actor=ADMIN)
    enforced()
    assert Run.objects.filter(removed_at=None).count() == 0
    assert (object_store.keys(), ArchivedRun.objects.count()) == ([], 0)
    assert places_of(SECRET) == set()
    for act in (hold, lift_hold):
        with pytest.raises(Forbidden):
            act(run=run, reason="mine", actor=Actor(person="ada"))
    with pytest.raises(NotHeld):
        lift_hold(run=run, reason="again", actor=ADMIN)


def test_a_hold_during_a_verification_is_no_finding(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended(target)

    def hold_it(*_: object) -> None:
        aside(lambda: hold(run=run, reason="lawsuit 7", actor=ADMIN))

    around(monkeypatch, verification, "read_row", after=hold_it)
    assert verification.verify(run).findings == ()
    Run.objects.filter(id=run).update(legal_hold=None)
    with pytest.raises(Tampered, match="by the audit"):
        runs.require_no_hold(run)
    hold_it()
    lifts = [lambda: lift_hold(run=run, reason="settled", actor=ADMIN)]

    def lift_it(*_: object) -> None:
        while lifts:
            aside(lifts.pop())

    around(monkeypatch, ApprovalService, "is_held", after=lift_it)
    runs.require_no_hold(run)
    assert lifts == []


def test_what_needs_the_journal_says_that_the_run_is_archived(target: Target) -> None:
    run = ended(target, key="H-1")
    assert enforced() == 1
    for act in (
        lambda: fork(run=run, position=1, actor=ADMIN),
        lambda: retry(run=run, reason="again", actor=ADMIN),
        lambda: export_run(run=run, actor=ADMIN),
    ):
        with pytest.raises(RunArchived):
            act()
    assert target.start(args=ARGS, key="H-1", advanced=False) == run
    digest = ArchivedRun.objects.get().contents[0]
    assert lines.find_blob(Q(), digest) == (SECRET * 5_000,)
    assert lines.find_blob(Q(requester="cyril"), digest) is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reader_of_a_run_that_is_moved_meanwhile_reads_all_of_it(
    target: Target, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    run = ended(target)
    digest = StoredBlob.objects.get().digest
    reads: list[Callable[[], object]] = [
        lambda: lines.read(run),
        lambda: entries.read_journal_page(run, cursor=2).items,
        lambda: stored_of(run)[:3],
        lambda: lines.find_blob(Q(), digest),
    ]
    moves: list[Callable[[], object]] = []

    def move(*_: object) -> None:
        while moves:
            aside(moves.pop())

    expected = [read() for read in reads]
    around(monkeypatch, archived_runs, "find_file", **{when: move})
    around(monkeypatch, blobs, "fetch", before=move)
    for read, result in zip(reads, expected, strict=True):
        moves.append(enforced)
        assert read() == result
        move()
        moves.append(lambda: restore(run=run, reason="asked", actor=ADMIN))
        assert read() == result
        ArchivedRun.objects.update(at=timezone.now() - timedelta(days=31))


def test_the_commands_archive_hold_verify_and_restore(
    target: Target, object_store: Breakable, tmp_path: Path
) -> None:
    run = ended(target)
    said = StringIO()
    given = [str(run), "--as", "admin", "--reason", "lawsuit 7"]
    for command in (
        ["archive_runs", "--dry-run"],
        ["hold_run", *given],
        ["archive_runs"],
        ["lift_hold", *given],
        ["archive_runs"],
        ["restore_run", *given],
    ):
        call_command(*command, stdout=said)
    at = Run.objects.get(id=run).ended_at
    group = f"hr_onboarding completed: 1 runs older than 30 days, the first of {at:%Y-%m-%d}"
    assert said.getvalue().splitlines() == [
        group,
        "1 runs would be archived.",
        f"Run {run} is under a legal hold.",
        "0 of 0 runs are archived.",
        f"Run {run} is under no legal hold.",
        group,
        "1 of 1 runs are archived.",
        f"Run {run} is in Postgres again.",
    ]
    ArchivedRun.objects.update(at=timezone.now() - timedelta(days=31))
    enforced()
    copy = tmp_path / "run.gz"
    copy.write_bytes(object_store.get(ArchivedRun.objects.get().place or "") or b"")
    said = StringIO()
    call_command("verify_run", "--file", str(copy), stdout=said)
    call_command("import_run", str(copy), "--as", "admin", stdout=said)
    verified, restored = said.getvalue().splitlines()
    assert verified.startswith(f"run {run} of hr_onboarding, ")
    assert restored == f"Run {run} is in Postgres again."
    with pytest.raises(CommandError, match="Only admins"):
        call_command("restore_run", str(run), "--as", "ada", "--reason", "mine")
