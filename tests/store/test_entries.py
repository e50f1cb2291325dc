"""Entries are stored as compressed bytes, and results that are too big beside them, once by their hash."""

import json
import logging
from itertools import product
from uuid import UUID

import pytest
from django.db import connection

from runtime.core.documents.blobs import Blob as Text
from runtime.core.documents.blobs import hash_text
from runtime.core.values.enums import EffectClass, Verdict
from runtime.core.values.limits import KEPT_INLINE
from runtime.errors import Tampered
from runtime.keyring import files, purposes, signatures
from runtime.models import BlobReference, JournalEntry, StoredBlob, StoredContinuation
from runtime.ports.effects import ToolRequest, ToolResult, Unknown
from runtime.store import pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import blobs, journal
from tests.support.engine import MakeBench, Rig, bodies
from tests.support.fake_ports import FakeTool, ask, say, turns

BIG = {"rows": ["ä" * 1_000] * 300}
READS = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value=BIG))
GATED = FakeTool(gated=True)


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    """An agent that reads much, then waits for a person, then answers."""
    return rig({"a": turns(ask(("read", {})), ask(("t", {})), say("done"))}, read=READS, t=GATED)


def suspended(desk: Rig) -> UUID:
    run = desk.advance(desk.start("a"))
    assert run.status == "suspended"
    return run.id


def test_a_large_result_is_stored_once_beside_the_journal(desk: Rig, continued: None) -> None:
    run, other = suspended(desk), suspended(desk)
    assert len(json.dumps(BIG)) > 1_000_000
    assert sum(map(len, bodies(JournalEntry.objects.filter(run_id=run)))) < 10_000
    assert len(StoredContinuation.objects.get(run=run).body) < 10_000
    stored = StoredBlob.objects.get()
    assert stored.digest == hash_text(stored.body)
    uses = set(BlobReference.objects.values_list("run", "blob"))
    assert uses == {(run, stored.digest), (other, stored.digest)}
    assert desk.heard() == {"call": "c1.0", "tool": "read", "outcome": "returned", "content": BIG}
    assert desk.answer(run).status == "completed"
    assert desk.effects.models[-1].messages[2]["results"][0]["content"] == BIG


def test_a_result_at_the_limit_stays_in_its_entry(rig: MakeBench) -> None:
    value = "x" * (KEPT_INLINE - 2)
    tool = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value=value))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "completed"
    assert not StoredBlob.objects.exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE runtime_storedblob SET body = '\"another\"'", "does not match its digest"),
        ("DELETE FROM runtime_blobreference; DELETE FROM runtime_storedblob", "is missing"),
    ],
)
def test_a_content_that_was_changed_or_is_gone_parks_the_run(
    desk: Rig, change: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = suspended(desk)
    with connection.cursor() as cursor:
        cursor.execute(change)
    parked = desk.answer(run)
    assert (parked.status, parked.due_at) == ("quarantined", None)
    assert why in (parked.reason or "")
    assert len(desk.effects.calls) == 1  # the approved call did not start
    assert any(one.levelno == logging.CRITICAL for one in caplog.records)


def test_big_results_of_transactions_and_of_people_are_stored_too(rig: MakeBench) -> None:
    lost = FakeTool(body=lambda request: Unknown(error="cut"))
    writes = FakeTool(effect=EffectClass.TRANSACTIONAL, body=READS.body)
    desk = rig({"a": turns(ask(("w", {}), ("t", {})), say("done"))}, w=writes, t=lost)
    run = suspended(desk)
    assert desk.answer(run, Verdict.HAPPENED, "", BIG).status == "completed"
    assert desk.heard(0)["content"] == desk.heard(1)["content"] == BIG
    assert StoredBlob.objects.count() == 1


def test_a_step_that_is_not_written_stores_nothing(desk: Rig) -> None:
    """The reading worker is robbed of its lease, so its step finds no row."""

    def robbed(request: ToolRequest) -> ToolResult:
        with pool.open_own() as own:
            own.execute("UPDATE runtime_run SET epoch = epoch + 1 WHERE id = %s", (request.run,))
        return ToolResult(value=BIG)

    desk.effects.tools["read"] = FakeTool(effect=EffectClass.READ, body=robbed)
    assert desk.advance(desk.start("a")).status == "running"
    assert not StoredBlob.objects.exists()
    assert not BlobReference.objects.exists()


def test_only_unreferenced_blobs_unused_for_long_are_collected(own: Connection, desk: Rig) -> None:
    run = suspended(desk)
    stored = StoredBlob.objects.get()
    again = blobs.build_blob_parameters([Text(digest=stored.digest, text=stored.body)])
    long_ago = "UPDATE runtime_storedblob SET used_at = now() - interval '2 hours'"
    own.execute("INSERT INTO runtime_storedblob (digest, body) VALUES ('sha256:x', '1')")
    assert blobs.collect(own, 10) == 0
    own.execute(long_ago)
    assert blobs.collect(own, 10) == 1
    assert StoredBlob.objects.get() == stored
    runs.delete_rows(own, run, blobs.REFERENCES)
    this = "WITH run AS (SELECT id FROM runtime_run WHERE id = %(run)s)"
    own.execute(f"{this} {blobs.STORE}", {"run": run, **again})
    runs.delete_rows(own, run, blobs.REFERENCES)
    assert blobs.collect(own, 10) == 0  # it was used just now
    own.execute(long_ago)
    assert blobs.collect(own, 10) == 1


# Compressed entries are stored as bytes with a truncated MAC; those of the release before are read as they are


def entries(run: UUID) -> list[JournalEntry]:
    return list(JournalEntry.objects.filter(run_id=run).order_by("position"))


def test_a_short_entry_is_packed_and_every_byte_counts(gated: Rig) -> None:
    run = gated.advance(gated.start("a"))
    rows = entries(run.id)
    assert {(row.body, row.mac) for row in rows} == {("", "")}
    assert bytes(rows[-1].packed or b"")[:16].hex() == run.head
    assert all(text.startswith('{"schema":1,"z":"') for text in bodies(JournalEntry.objects.all()))

    def verifies(**values: object) -> bool:
        JournalEntry.objects.filter(run_id=run.id, position=2).update(**values)
        with pool.open_own() as own:
            try:
                journal.verify(own, run.id, position=run.position, head=run.head)
            except Tampered:
                return False
        return True

    packed = bytes(rows[1].packed or b"")
    for at, byte in enumerate(packed):
        assert not verifies(packed=packed[:at] + bytes([byte ^ 1]) + packed[at + 1 :]), at
    assert verifies(packed=packed)
    for column, text in product(("body", "mac"), ("x", "é")):
        assert not verifies(**{"body": "", "mac": "", column: text}), (column, text)


def test_a_long_entry_is_text(rig: MakeBench) -> None:
    long = FakeTool(body=lambda _: ToolResult(value="x" * (KEPT_INLINE // 4)))
    desk = rig({"a": turns(ask(("long", {})), ask(("t", {})), say("done"))}, long=long, t=GATED)
    run = desk.advance(desk.start("a")).id
    (row,) = [row for row in entries(run) if row.packed is None]
    assert len(row.mac) == signatures.SHORT
    assert {one.key_id for one in entries(run)} <= set(files.list_key_ids(purposes.JOURNAL))
    assert desk.answer(run).status == "completed"


def test_an_entry_with_a_whole_mac_is_refused(gated: Rig) -> None:
    run = gated.advance(gated.start("a")).id
    (text,) = bodies(JournalEntry.objects.filter(run_id=run, position=1))
    seal = signatures.seal(purposes.JOURNAL, str(run), "1", "", text)
    JournalEntry.objects.filter(run_id=run, position=1).update(body=text, mac=seal.mac, packed=None)
    parked = gated.answer(run)
    assert (parked.status, parked.reason) == ("quarantined", "journal entry 1 does not verify")


def test_a_truncated_mac_has_half_of_its_digits() -> None:
    files.ensure(purposes.JOURNAL)
    whole = signatures.seal(purposes.JOURNAL, "run", "1")
    assert signatures.seal(purposes.JOURNAL, "run", "1", short=True).mac == whole.mac[:32]
    verifies = signatures.make_verifier(purposes.JOURNAL, "run")
    accepted = [n for n in range(65) if verifies(whole.mac[:n], whole.key_id, "1")]
    assert accepted == [32]
    assert not signatures.verify(purposes.JOURNAL, whole, "run", "1", short=True)
