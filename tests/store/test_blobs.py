"""Results too big for an entry: stored once by their hash, in the commit that refers to them, and checked."""

import json
import logging
from uuid import UUID

import pytest
from django.db import connection

from runtime.core.documents.blobs import Blob as Text
from runtime.core.documents.blobs import digest_of
from runtime.core.enums import EffectClass, Verdict
from runtime.core.limits import KEPT_INLINE
from runtime.models import Blob, BlobReference, Continuation, JournalEntry
from runtime.ports.effects import ToolRequest, ToolResult, Unknown
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import blobs
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


def test_a_large_result_is_stored_once_beside_journal_and_continuation(
    desk: Rig, continued: None
) -> None:
    run, other = suspended(desk), suspended(desk)
    assert len(json.dumps(BIG)) > 1_000_000
    assert sum(map(len, bodies(JournalEntry.objects.filter(run_id=run)))) < 10_000
    assert len(Continuation.objects.get(run=run).body) < 10_000
    stored = Blob.objects.get()
    assert stored.digest == digest_of(stored.body)
    uses = set(BlobReference.objects.values_list("run", "content"))
    assert uses == {(run, stored.digest), (other, stored.digest)}
    assert desk.heard() == {"call": "c1.0", "tool": "read", "outcome": "returned", "content": BIG}
    assert desk.answer(run).status == "completed"
    assert desk.effects.models[-1].messages[2]["results"][0]["content"] == BIG


def test_a_result_at_the_limit_stays_in_its_entry(rig: MakeBench) -> None:
    value = "x" * (KEPT_INLINE - 2)
    tool = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value=value))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "completed"
    assert not Blob.objects.exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE runtime_content SET body = '\"another\"'", "does not match its digest"),
        ("DELETE FROM runtime_contentuse; DELETE FROM runtime_content", "is missing"),
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
    assert Blob.objects.count() == 1


def test_a_step_that_is_not_written_stores_nothing(desk: Rig) -> None:
    """The reading worker is robbed of its lease, so its step finds no row."""

    def robbed(request: ToolRequest) -> ToolResult:
        with pool.own() as own:
            own.execute("UPDATE runtime_run SET epoch = epoch + 1 WHERE id = %s", (request.run,))
        return ToolResult(value=BIG)

    desk.effects.tools["read"] = FakeTool(effect=EffectClass.READ, body=robbed)
    assert desk.advance(desk.start("a")).status == "running"
    assert not Blob.objects.exists()
    assert not BlobReference.objects.exists()


def test_only_unreferenced_blobs_unused_for_long_are_collected(own: Connection, desk: Rig) -> None:
    run = suspended(desk)
    stored = Blob.objects.get()
    again = blobs.parameters([Text(digest=stored.digest, text=stored.body)])
    long_ago = "UPDATE runtime_content SET used_at = now() - interval '2 hours'"
    own.execute("INSERT INTO runtime_content (digest, body) VALUES ('sha256:x', '1')")
    assert blobs.collect(own, 10) == 0
    own.execute(long_ago)
    assert blobs.collect(own, 10) == 1
    assert Blob.objects.get() == stored
    blobs.delete_for_run(own, run)
    this = "WITH run AS (SELECT id FROM runtime_run WHERE id = %(run)s)"
    own.execute(f"{this} {blobs.STORE}", {"run": run, **again})
    blobs.delete_for_run(own, run)
    assert blobs.collect(own, 10) == 0  # it was used just now
    own.execute(long_ago)
    assert blobs.collect(own, 10) == 1
