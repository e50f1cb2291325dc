"""Runs with a shortened journal leave as any other run does: into the archive, or to another installation."""

import threading
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pytest_django import Settings

from runtime.control import interventions, verification
from runtime.control.transfer import export_run, import_run, restore
from runtime.core.documents import export_file
from runtime.core.run.events import PinnedPrompt
from runtime.models import ArchivedEntries, ArchivedRun, CompactionBase, JournalEntry, Pruning, Run
from runtime.ports.agents import Instructions
from runtime.ports.effects import ModelFailure
from runtime.reads import entries, run_rows
from runtime.reads import journal as lines
from runtime.store import pool
from runtime.store.tables import objects
from runtime.upkeep import retention
from runtime.upkeep.retention_rules import parse
from tests.support.elsewhere import Move
from tests.support.engine import ADA, Rig
from tests.support.fake_ports import FakeApprovals, FakeEffects
from tests.support.long_runs import findings, positions, shortened
from tests.support.object_stores import BOTH, Breakable
from tests.upkeep.test_archiving import record_of


@pytest.fixture(autouse=True)
def _archive(settings: Settings, object_store: Breakable) -> None:
    """Runs are archived, and with them the removed entries of runs that go on."""
    settings.SIGNOFF_ARCHIVE = parse("30")


def failed(desk: Rig, run: UUID) -> None:
    """Let the run fail once."""
    real = desk.effects.agents["a"]
    desk.effects.agents["a"] = lambda _: ModelFailure(error="no")
    assert desk.answer(run).status == "failed"
    desk.effects.agents["a"] = real


def archived(run: UUID) -> bool:
    with pool.open_own() as own:
        return retention.archive_run(own, run)


def shown(run: UUID) -> tuple[object, ...]:
    """What people and auditors read of the run's history."""
    found = verification.verify(run)
    row = run_rows.with_archive(run_rows._build_detail(Run.objects.get(id=run), ()))
    pages = (
        entries.read_journal_page(run, limit=99),
        entries.read_journal_page(run, limit=5, cursor=3),
    )
    return found, lines.read_remaining(run), pages, row.output, row.reason


def stored(run: UUID) -> list[dict[str, Any]]:
    mark = Pruning.objects.filter(run=run).values("position", "head", "at", "state")
    entries = JournalEntry.objects.filter(run_id=run).order_by("position")
    return [dict(mark.get()), *map(dict, entries.values("position", "packed", "mac", "key_id"))]


def erased(run: UUID) -> None:
    assert retention.erase(run)
    with pool.open_own() as own:
        objects.delete_dropped(own, threading.Event())


@BOTH
def test_a_shortened_run_is_archived_restored_retried_and_erased(
    desk: Rig, long: UUID, object_store: Breakable
) -> None:
    failed(desk, long)
    before, rows = shown(long), stored(long)
    removed = list(ArchivedEntries.objects.values_list("first", "last", "place", "digest"))
    assert archived(long)
    assert positions(long) == []
    assert shown(long) == before
    assert findings(long) == []
    assert record_of(object_store)["removed"] == [list(one) for one in removed] != []
    restore(run=long, reason="a question", actor=ADA)
    assert (stored(long), shown(long)) == (rows, before)
    interventions.retry(run=long, reason="again", actor=ADA)
    assert desk.advance(long).status == "suspended"
    assert shortened() > 10
    failed(desk, long)
    ArchivedRun.objects.all().delete()  # as if it had been restored long ago
    again = shown(long)
    assert archived(long)
    assert (shown(long), findings(long)) == (again, [])
    erased(long)
    assert (ArchivedEntries.objects.count(), ArchivedRun.objects.count()) == (0, 0)
    left = object_store.keys()
    assert [key.partition("/")[0] for key in left] == ["runs"]  # of the first time
    assert findings(long) == []


def test_a_shortened_run_is_verified_with_the_prompts_that_it_pinned_before(
    desk: Rig, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    pinned = PinnedPrompt(name="shop/desk", number=1, digest="d", at=at)
    made = Instructions(text="Serve.", pinned=pinned)
    monkeypatch.setattr(FakeEffects, "instruct", lambda *_, **__: made)
    long = request.getfixturevalue("long")
    assert findings(long) == []
    monkeypatch.setattr(FakeApprovals, "find_prompt_problem", lambda *_: "it has another text")
    assert findings(long) == ["prompt shop/desk, version 1: it has another text"]


def test_an_archived_run_names_the_files_of_its_removed_entries(
    desk: Rig, long: UUID, object_store: Breakable
) -> None:
    failed(desk, long)
    assert archived(long)
    file = ArchivedEntries.objects.get()
    data = object_store.get(file.place) or b""
    object_store.delete(file.place)
    assert findings(long) == [f"archive: the object {file.place} is missing"]
    object_store.put(file.place, data)
    ArchivedEntries.objects.all().delete()
    (finding,) = findings(long)
    assert "are not those that the file of the run names" in finding


def test_a_shortened_run_continues_elsewhere(desk: Rig, long: UUID, elsewhere: Move) -> None:
    mark = Pruning.objects.get(run=long)
    text = export_run(run=long, actor=ADA)
    assert text == export_run(run=long, actor=ADA)
    file = export_file.decode(text)
    manifest, _ = export_file.check(file)
    assert manifest.removed == mark.position
    elsewhere(long)
    assert import_run(data=text.encode(), actor=ADA) == long
    found = verification.verify(long)
    assert (found.findings, found.removed, found.removed_at) == ((), mark.position, mark.at)
    assert positions(long)[0] == CompactionBase.objects.get(run=long).position + 1
    run = desk.advance(long)
    while run.status == "suspended":
        run = desk.answer(long)
        assert findings(long) == []
        shortened()
    assert (run.status, run.output) == ("completed", '"done"')
    assert [call.args["n"] for call in desk.effects.calls] == list(range(1, 31))
    assert positions(long)[0] > manifest.removed + 10
    assert findings(long) == []


def test_an_imported_run_that_fails_is_retried(desk: Rig, long: UUID, elsewhere: Move) -> None:
    text = export_run(run=long, actor=ADA)
    elsewhere(long)
    import_run(data=text.encode(), actor=ADA)
    assert desk.advance(long).status == "suspended"
    failed(desk, long)
    interventions.retry(run=long, reason="again", actor=ADA)
    assert desk.advance(long).status == "suspended"
    assert findings(long) == []
