"""verify_run: a sound run has no finding, and every change made behind the engine's back has one."""

import io
import json
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command

from runtime.control import verification
from runtime.core.enums import Verdict
from runtime.errors import NoSuchRun
from runtime.models import Run
from runtime.ports.effects import ToolResult
from runtime.store import pool
from tests.support.engine import MakeBench, Rig
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
    with pool.own() as own:
        assert own.execute(statement, values).rowcount == 1


def test_a_run_is_sound_from_its_start_to_its_end(desk: Rig, continued: None) -> None:
    run = desk.start("a")
    assert found(run) == []
    while desk.advance(run).ended_at is None:
        assert found(run) == []
        desk.decide(desk.open_gates(run)[0].id, Verdict.APPROVE)
        assert found(run) == []
    assert Run.objects.get(id=run).status == "completed"
    assert found(run) == []


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
        ("UPDATE runtime_continuation SET body = body || ' ' WHERE run_id = %s", "continuation"),
        ("UPDATE runtime_continuation SET position = position + 1 WHERE run_id = %s", "continuation"),
        ("DELETE FROM runtime_continuation WHERE run_id = %s", "continuation"),
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


def test_a_gate_without_an_opening_entry_is_found(waiting: UUID) -> None:
    gate = uuid4()
    change(
        "INSERT INTO runtime_gate (id, run_id, kind, frame, call, tool, path, state)"
        " VALUES (%s, %s, 'approval', '0', 'c1.0', 't', '[]', 'open')",
        gate,
        waiting,
    )
    assert found(waiting) == [f"gate {gate}: it is not in the journal"]


def test_a_continuation_that_outlives_its_run_is_found(desk: Rig, waiting: UUID) -> None:
    kept = _continuation(waiting)
    run = desk.advance(waiting)
    while run.ended_at is None:
        desk.decide(desk.open_gates(run.id)[0].id, Verdict.DENY, "no")
        run = desk.advance(waiting)
    change("INSERT INTO runtime_continuation VALUES (%s, %s, %s, %s, %s)", *kept)
    assert found(waiting) == ["continuation: the run has ended, but its continuation exists"]


def test_a_blob_with_another_hash_is_found(rig: MakeBench) -> None:
    big = FakeTool(body=lambda request: ToolResult(value="x" * 100_000))
    desk = rig({"a": turns(ask(("read", {})), ask(("t", {})), say("done"))}, read=big, t=GATED)
    run = desk.advance(desk.start("a")).id
    assert found(run) == []
    change("UPDATE runtime_content SET body = '1'")
    assert [finding.subject for finding in verification.verify(run).findings] == ["content"]


def test_a_run_that_nothing_will_move_again_is_found(desk: Rig) -> None:
    run = desk.start("a")
    change("UPDATE runtime_run SET due_at = NULL WHERE id = %s", run)
    assert found(run) == ["stuck: the run has no due time and no open gate"]
    change("UPDATE runtime_run SET status = 'quarantined' WHERE id = %s", run)
    assert found(run) == []


def test_a_run_that_does_not_exist_cannot_be_verified(transactional_db: None) -> None:
    with pytest.raises(NoSuchRun):
        verification.verify(uuid4())


# The command


def verify_run(*args: str) -> tuple[str, str]:
    """Return the output of the command, and its error."""
    out = io.StringIO()
    try:
        call_command("verify_run", *args, stdout=out)
    except CommandError as exc:
        return out.getvalue(), str(exc)
    return out.getvalue(), ""


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
    assert verify_run(str(waiting)) == ("1 run verified, nothing found\n", "")


def test_the_command_speaks_json(waiting: UUID) -> None:
    change("UPDATE runtime_run SET agent = 'b' WHERE id = %s", waiting)
    out, error = verify_run("--json", "--all")
    assert error
    assert json.loads(out) == {
        "run": str(waiting),
        "status": "suspended",
        "position": Run.objects.get(id=waiting).position,
        "findings": [{"subject": "agent", "problem": "the row has 'b', the journal 'a'"}],
    }


def test_the_command_refuses_an_unknown_run(transactional_db: None) -> None:
    assert "there is no run" in verify_run(str(uuid4()))[1]
    assert "is not the id of a run" in verify_run("seven")[1]
    assert "required" in verify_run()[1]


def test_runs_that_are_over_are_not_live(desk: Rig) -> None:
    run = desk.start("a")
    assert verification.runs(live=True) == [run]
    change("UPDATE runtime_run SET ended_at = now() WHERE id = %s", run)
    assert (verification.runs(live=True), verification.runs(live=False)) == ([], [run])


def _continuation(run: UUID) -> tuple[object, ...]:
    with pool.own() as own:
        row = own.execute(
            "SELECT run_id, position, body, mac, key_id FROM runtime_continuation WHERE run_id = %s",
            (run,),
        ).fetchone()
    assert row is not None
    return row
