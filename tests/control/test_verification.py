"""verify_run: a sound run has no finding, and every change made behind the engine's back has one."""

import json
from functools import partial
from uuid import UUID, uuid4

import pytest

from runtime.control import verification
from runtime.core.values.enums import Verdict
from runtime.models import Gate, StoredContinuation, WorkerProcess
from runtime.ports.effects import ToolResult
from runtime.store import pool
from tests.support.commands import tried
from tests.support.engine import MakeBench, Rig, cancel
from tests.support.fake_ports import FakeTool, ask, say, turns

GATED = FakeTool(gated=True)


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    return rig(
        {"a": turns(ask(("t", {}), ("u", {})), ask(("t", {})), say("done"))}, t=GATED, u=GATED
    )


@pytest.fixture
def waiting(desk: Rig, continued: None) -> UUID:
    """A run with a continuation, an entry after it, a gate that was decided and one that is open."""
    run = desk.advance(desk.start("a")).id
    desk.decide(desk.open_gates(run)[0].id, Verdict.APPROVE)
    return run


def found(run: UUID) -> list[str]:
    return [
        f"{finding.subject}: {finding.problem}" for finding in verification.verify(run).findings
    ]


def change(statement: str, *values: object) -> None:
    """Change one stored row behind the engine's back."""
    with pool.open_own() as own:
        assert own.execute(statement, values).rowcount == 1


@pytest.mark.parametrize(
    ("change_to_row", "subject"),
    [
        ("position = position + 1", "position"),
        ("head = 'another'", "head"),
        ("status = 'completed'", "status"),
        ("output = '\"done\"'", "output"),
        ("reason = 'because'", "reason"),
        ("input = '{}x'", "input"),
        ("agent = 'b'", "agent"),
        ("requester = 'bea'", "requester"),
        ("origin = origin || '[\"bea\"]'", "origin"),
        ("ended_at = now()", "ended"),
        ("base = base - 1", "continuation"),
        ("unheard = 3", "unheard"),
        ("mailbox = 0", "mailbox"),
        ("due_at = NULL", "mailbox"),
    ],
)
def test_a_changed_row_is_found(waiting: UUID, change_to_row: str, subject: str) -> None:
    assert found(waiting) == []
    change(f"UPDATE runtime_run SET {change_to_row} WHERE id = %s", waiting)
    assert subject in [finding.subject for finding in verification.verify(waiting).findings]


@pytest.mark.parametrize(
    ("statement", "subject"),
    [
        ("UPDATE runtime_journalentry SET body = body || ' ' WHERE run_id = %s AND position = 2", "journal"),
        ("DELETE FROM runtime_journalentry WHERE run_id = %s AND position = 2", "journal"),
        ("UPDATE runtime_journalentry SET key_id = 'x' WHERE run_id = %s AND position = 1", "journal"),
        ("UPDATE runtime_storedcontinuation SET body = body || ' ' WHERE run_id = %s", "continuation"),
        ("UPDATE runtime_storedcontinuation SET position = position + 1 WHERE run_id = %s", "continuation"),
        ("DELETE FROM runtime_storedcontinuation WHERE run_id = %s", "continuation"),
        ("UPDATE runtime_gate SET state = 'effective' WHERE run_id = %s AND state = 'open'", "gate"),
        ("UPDATE runtime_gate SET state = 'closed' WHERE run_id = %s AND state = 'open'", "gate"),
        ("UPDATE runtime_gate SET state = 'open' WHERE run_id = %s AND state = 'decided'", "gate"),
        ("UPDATE runtime_gate SET call = 'c9.9' WHERE run_id = %s AND state = 'open'", "gate"),
        ("DELETE FROM runtime_gate WHERE run_id = %s AND state = 'open'", "gate"),
        ("DELETE FROM runtime_signal WHERE run_id = %s", "gate"),
        ("UPDATE runtime_signal SET body = '{}' WHERE run_id = %s", "mailbox"),
    ],
)  # fmt: skip
def test_every_other_change_is_found(waiting: UUID, statement: str, subject: str) -> None:
    change(statement, waiting)
    assert subject in [
        finding.subject.split()[0] for finding in verification.verify(waiting).findings
    ]


def test_rows_beside_the_journal_are_found(desk: Rig, waiting: UUID) -> None:
    gate = uuid4()
    change(
        "INSERT INTO runtime_gate (id, run_id, kind, frame, call, tool, path, state)"
        " VALUES (%s, %s, 'approval', '0', 'c1.0', 't', '[]', 'open')",
        gate,
        waiting,
    )
    assert found(waiting) == [f"gate {gate}: it is not in the journal"]
    Gate.objects.get(id=gate).delete()
    kept = StoredContinuation.objects.values().get(run=waiting)
    cancel(waiting)
    desk.advance(waiting)
    StoredContinuation.objects.create(**kept)
    assert found(waiting) == ["continuation: the run has ended, but its continuation exists"]


def test_a_blob_with_another_hash_is_found(rig: MakeBench) -> None:
    big = FakeTool(body=lambda request: ToolResult(value="x" * 100_000))
    desk = rig({"a": turns(ask(("read", {})), ask(("t", {})), say("done"))}, read=big, t=GATED)
    run = desk.advance(desk.start("a")).id
    assert found(run) == []
    change("UPDATE runtime_storedblob SET body = '1'")
    assert [finding.subject for finding in verification.verify(run).findings] == ["content"]


def test_a_run_that_nothing_will_move_again_is_found(desk: Rig) -> None:
    run = desk.start("a")
    lives = uuid4()  # the worker that had it, and has released it
    WorkerProcess.objects.create(id=lives, host="here", process=1, lease_until="2999-01-01T00:00Z")
    change("UPDATE runtime_run SET due_at = NULL, worker = %s WHERE id = %s", lives, run)
    assert found(run) == ["stuck: the run has no due time and no open gate"]
    change("UPDATE runtime_run SET status = 'quarantined' WHERE id = %s", run)
    assert found(run) == []


verify_run = partial(tried, "verify_run")


def test_the_command_says_one_line_per_finding_and_fails(desk: Rig, waiting: UUID) -> None:
    other = desk.start("a")
    assert verify_run("--all-live") == ("2 runs verified, nothing found\n", "")
    change("UPDATE runtime_run SET head = 'x', agent = 'b' WHERE id = %s", other)
    out, error = verify_run("--all")
    assert [line.split(": ")[:2] for line in out.splitlines()] == [
        [str(other), "head"],
        [str(other), "agent"],
    ]
    assert error == "1 of 2 runs differ from their journals"
    found = json.loads(verify_run("--json", str(other))[0])
    assert (found["run"], found["status"], found["position"]) == (str(other), "queued", 1)
    assert {"subject": "agent", "problem": "the row has 'b', the journal 'a'"} in found["findings"]
    change("UPDATE runtime_run SET ended_at = now() WHERE id = %s", other)
    assert verify_run("--all-live") == ("1 run verified, nothing found\n", "")
    assert "there is no run" in verify_run(str(uuid4()))[1]
    assert "is not the id of a run" in verify_run("seven")[1]
    assert "required" in verify_run()[1]
