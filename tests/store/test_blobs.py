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
from runtime.store.tables import blobs
from tests.support.engine import MakeBench, Rig
from tests.support.entries import bodies
from tests.support.fake_ports import FakeTool, ask, say, turns

BIG = {"rows": ["ä" * 1_000] * 300}
READS = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value=BIG))
GATED = FakeTool(gated=True)
FORGED = {"stored": {"digest": "sha256:0", "size": 1}, "$result": "sha256:0"}


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    """An agent that reads much, then waits for a person, then answers."""
    return rig({"a": turns(ask(("read", {})), ask(("t", {})), say("done"))}, read=READS, t=GATED)


def suspended(desk: Rig) -> UUID:
    run = desk.advance(desk.start("a"))
    assert run.status == "suspended"
    return run.id


def test_a_large_result_keeps_journal_and_continuation_small(desk: Rig, continued: None) -> None:
    run = suspended(desk)
    size = len(json.dumps(BIG))
    assert size > 1_000_000
    entries = bodies(JournalEntry.objects.filter(run_id=run))
    assert sum(map(len, entries)) < 10_000
    assert len(Continuation.objects.get(run=run).body) < 10_000
    assert len(Blob.objects.get().body) < size
    assert desk.effects.models[-1].messages[-1] == {
        "role": "results",
        "results": [{"call": "c1.0", "tool": "read", "outcome": "returned", "content": BIG}],
    }
    assert desk.answer(run).status == "completed"
    assert desk.effects.models[-1].messages[2]["results"][0]["content"] == BIG


def test_the_same_content_is_stored_once(desk: Rig) -> None:
    one, other = suspended(desk), suspended(desk)
    stored = Blob.objects.get()
    assert stored.digest == digest_of(stored.body)
    assert set(BlobReference.objects.values_list("run", "content")) == {
        (one, stored.digest),
        (other, stored.digest),
    }


def test_a_result_at_the_limit_stays_in_its_entry(rig: MakeBench) -> None:
    value = "x" * (KEPT_INLINE - 2)
    tool = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value=value))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    assert desk.advance(desk.start("a")).status == "completed"
    assert not Blob.objects.exists()


def test_a_value_that_looks_like_a_reference_is_a_value(rig: MakeBench) -> None:
    tool = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value=FORGED))
    desk = rig({"a": turns(ask(("t", FORGED)), ask(("u", {})), say("done"))}, t=tool, u=GATED)
    run = suspended(desk)
    assert desk.answer(run).status == "completed"
    assert desk.effects.models[-1].messages[2]["results"][0]["content"] == FORGED


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE runtime_content SET body = body || ' '", "does not match its digest"),
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


def test_a_transactional_tools_result_commits_with_its_writes(rig: MakeBench) -> None:
    def write(request: ToolRequest) -> ToolResult:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return ToolResult(value=BIG)

    tool = FakeTool(effect=EffectClass.TRANSACTIONAL, body=write)
    desk = rig({"a": turns(ask(("w", {}), ("read", {})), say("done"))}, w=tool, read=READS)
    assert desk.advance(desk.start("a")).status == "completed"
    heard = [r["content"] for r in desk.effects.models[-1].messages[-1]["results"]]
    assert heard == [BIG, BIG]


def test_a_big_result_that_a_person_reports_is_stored_too(rig: MakeBench) -> None:
    lost = FakeTool(body=lambda request: Unknown(error="cut"))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=lost)
    run = suspended(desk)
    desk.decide(desk.open_gates(run)[0].id, Verdict.HAPPENED, "", BIG)
    assert desk.advance(run).status == "completed"
    assert desk.heard()["content"] == BIG
    assert Blob.objects.count() == 1


def test_a_step_that_is_not_written_stores_nothing(
    desk: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading worker is robbed of its lease, so its step finds no row."""

    def robbed(request: ToolRequest) -> ToolResult:
        with pool.own() as own:
            own.execute("UPDATE runtime_run SET epoch = epoch + 1 WHERE id = %s", (request.run,))
        return ToolResult(value=BIG)

    desk.effects.tools["read"] = FakeTool(effect=EffectClass.READ, body=robbed)
    run = desk.advance(desk.start("a"))
    assert run.status == "running"
    assert not Blob.objects.exists()
    assert not BlobReference.objects.exists()


def test_only_old_unreferenced_blobs_are_collected(desk: Rig) -> None:
    run = suspended(desk)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO runtime_content (digest, body) VALUES ('sha256:x', '1')")
    with pool.own() as own:
        assert blobs.collect(own, 10) == 0
        own.execute("UPDATE runtime_content SET used_at = now() - interval '2 hours'")
        assert blobs.collect(own, 10) == 1
        assert Blob.objects.get().digest != "sha256:x"
        blobs.delete_for_run(own, run)
        assert blobs.collect(own, 10) == 1
    assert not Blob.objects.exists()


def test_a_content_that_is_used_again_is_not_collected(desk: Rig) -> None:
    run = suspended(desk)
    stored = Blob.objects.get()
    with pool.own() as own:
        blobs.delete_for_run(own, run)
        own.execute("UPDATE runtime_content SET used_at = now() - interval '2 hours'")
        again = blobs.parameters([Text(digest=stored.digest, text=stored.body)])
        own.execute(
            f"WITH run AS (SELECT id FROM runtime_run WHERE id = %(run)s) {blobs.STORE}",
            {"run": run, **again},
        )
        assert blobs.collect(own, 10) == 0
