"""All rows of a run are restored, by an attacker who can write every table but no file."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.utils import timezone
from pytest_django import Settings

from approvals.decisions import decide
from runtime.control import verification
from runtime.store import pool
from runtime.store.tables import used_approvals
from runtime.upkeep import sweeper
from tests.support import seeds
from tests.support.office import BEA, Target

WINDOW = 60.0
TABLES = {
    "runtime_run": "id",
    "runtime_journalentry": "run_id",
    "runtime_storedcontinuation": "run_id",
    "runtime_gate": "run_id",
    "runtime_signal": "run_id",
    "approvals_approval": "run_id",
}


@pytest.fixture
def kept(settings: Settings, tmp_path: Path) -> Path:
    """A ledger of this test's own."""
    settings.SIGNOFF_LEDGER = tmp_path / "ledger"
    return tmp_path / "ledger"


@contextmanager
def unguarded() -> Iterator[pool.Connection]:
    """Act as a superuser, whom triggers and foreign keys do not stop."""
    with pool.open_own() as own, own.transaction():
        own.execute("SET LOCAL session_replication_role = replica")
        yield own


def rows_of(run: UUID) -> dict[str, list[str]]:
    """Everything of a run as JSON, a text for each row."""
    found = {}
    with pool.open_own() as own:
        for table, key in TABLES.items():
            text = f"SELECT row_to_json(t)::text FROM {table} t WHERE {key} = %s"
            found[table] = [row for (row,) in own.execute(text.encode(), [run]).fetchall()]
    return found


def put_back(run: UUID, rows: dict[str, list[str]]) -> None:
    """Restore all rows in one transaction, due at once and with a new epoch."""
    with unguarded() as own:
        for table, key in TABLES.items():
            own.execute(f"DELETE FROM {table} WHERE {key} = %s".encode(), [run])
            text = f"INSERT INTO {table} SELECT * FROM json_populate_record(NULL::{table}, %s)"
            for row in rows[table]:
                own.execute(text.encode(), [row])
        own.execute(
            "UPDATE runtime_run SET due_at = now(), epoch = epoch + 100 WHERE id = %s", [run]
        )


def used(target: Target) -> tuple[UUID, dict[str, list[str]]]:
    """A run whose approved call was made, with its rows from before the call."""
    run = target.decided()
    before = rows_of(run)
    assert target.advance(run).status == "completed"
    return run, before


def forget_spent(run: UUID) -> None:
    with unguarded() as own:
        assert own.execute("DELETE FROM runtime_usedapproval WHERE run_id = %s", [run]).rowcount > 0


@pytest.mark.parametrize(
    ("forgotten", "with_ledger"),
    [(False, False), (True, True), (True, False)],
    ids=["put back", "use forgotten", "without a ledger"],
)
def test_one_approval_is_used_once_though_its_run_is_put_back(
    target: Target, settings: Settings, tmp_path: Path, forgotten: bool, with_ledger: bool
) -> None:
    if with_ledger:
        settings.SIGNOFF_LEDGER = tmp_path / "ledger"
    run, before = used(target)
    put_back(run, before)
    if forgotten:
        forget_spent(run)
    after = target.advance(run)
    if forgotten and not with_ledger:  # the limit of the promise, as guarantees.md states it
        assert (after.status, target.started(run)) == ("completed", 2)
    else:
        assert (after.status, target.started(run)) == ("quarantined", 1)
        assert ("by the ledger" if forgotten else "used before") in str(after.reason)


def test_the_ledger_reveals_a_rolled_back_database(
    target: Target, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = used(target)
    assert verification.verify(run).is_consistent
    forget_spent(run)
    (finding,) = verification.verify(run).findings
    assert finding.subject == "ledger"
    with pool.open_own() as own:
        sweeper.compare_ledger(own, threading.Event())
    assert "CRITICAL" in caplog.text


@pytest.mark.parametrize("how", ["edited", "dropped", "emptied"])
def test_no_approved_call_starts_on_a_changed_ledger(target: Target, kept: Path, how: str) -> None:
    used(target)
    used(target)
    text = kept.read_text()
    edited, dropped = text.replace("spent", "spend", 1), text[text.index("\n") + 1 :]
    kept.write_text({"edited": edited, "dropped": dropped, "emptied": ""}[how])
    if how != "emptied":  # which a process that has read it notices
        used_approvals._open.clear()
    run = target.decided()
    assert target.advance(run).status != "completed"
    assert target.started(run) == 0


def test_a_line_that_a_crash_cut_off_makes_room(kept: Path) -> None:
    used_approvals.record_fact("undone a 1")
    with kept.open("a") as file:
        file.write("undone b 1 2f")
    used_approvals.record_fact("undone c 1")
    again = used_approvals.Ledger(kept)
    assert again.read_facts() == {"undone a 1", "undone c 1"}
    again.add("undone d 1")  # as another process does
    assert used_approvals.has_fact("undone d 1")
    used_approvals.record_fact("undone e 1")
    assert used_approvals.Ledger(kept).read_facts() == {f"undone {name} 1" for name in "acde"}


@pytest.mark.parametrize(
    ("audited", "with_ledger"),
    [(True, False), (False, True), (False, False)],
    ids=["put back", "audit forgotten", "without a ledger"],
)
def test_a_decision_that_was_taken_back_stays_so(
    target: Target,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    audited: bool,
    with_ledger: bool,
) -> None:
    settings.SIGNOFF_LEDGER = tmp_path / "ledger" if with_ledger else None
    settings.SIGNOFF_UNDO_SECONDS = WINDOW
    run = target.start()
    approval = target.decide(run)
    before = rows_of(run)
    decide.undo(approval_id=approval.id, actor=BEA)
    with unguarded() as own:
        if not audited:
            forget = "DELETE FROM approvals_auditentry WHERE run_id = %s AND act = 'undone'"
            assert own.execute(forget, [run]).rowcount == 1
    put_back(run, before)
    seeds.set_clock(monkeypatch, timezone.now() + timedelta(seconds=WINDOW + 1))
    with unguarded() as own:
        own.execute("UPDATE runtime_signal SET effective_at = now() WHERE run_id = %s", [run])
    after = target.advance(run)
    if audited or with_ledger:
        assert (after.status, target.started(run)) == ("quarantined", 0)
        assert "was undone" in str(after.reason)
    else:  # the limit of the promise
        assert (after.status, target.started(run)) == ("completed", 1)
