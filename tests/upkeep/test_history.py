"""Long runs that go on lose the entries below a base: the rest verifies, resumes and is forked from where it begins."""

import threading
from dataclasses import replace
from uuid import UUID

import pytest
from django.test import Client
from pytest_django import Settings

from approvals.models import Approval
from approvals.signed import statements
from runtime.control import interventions, verification
from runtime.control.forks import fork
from runtime.core.values.enums import EffectClass, Verdict
from runtime.errors import HistoryRemoved, ObjectStoreDown, Tampered
from runtime.execution import commit
from runtime.execution.commit import StepWriter
from runtime.models import ArchivedEntries, CompactionBase, Pruning, Run, StoredContinuation
from runtime.ports import wiring
from runtime.ports.effects import ModelFailure, ToolRequest, ToolResult
from runtime.reads import entries
from runtime.reads import journal as lines
from runtime.store import archived_entries, pool, sealed_files
from runtime.store.loading import StoredRun
from runtime.store.tables import continuations, journal, objects
from runtime.upkeep import journals
from runtime.upkeep.retention_rules import parse
from tests.support.calls import around
from tests.support.engine import ADA, Death, Rig, die, types
from tests.support.fake_ports import FakeApprovals, FakeTool
from tests.support.long_runs import findings, long_office_run, plays, positions, shortened
from tests.support.office import Office
from tests.support.seeds import Cast


def test_a_run_goes_on_without_the_entries_below_its_base(desk: Rig, long: UUID) -> None:
    base, row = CompactionBase.objects.get(run=long), Run.objects.get(id=long)
    assert positions(long) == list(range(base.position, row.position + 1))
    assert types(long)[0] == "Compacted"
    found = verification.verify(long)
    assert (found.is_consistent, found.removed) == (True, base.position - 1)
    assert found.removed_at == Pruning.objects.get(run=long).at
    run = row
    while run.status == "suspended":
        run = desk.answer(long)
        shortened()
        assert findings(long) == []
    assert (run.status, run.output) == ("completed", '"done"')
    assert [call.args["n"] for call in desk.effects.calls] == list(range(1, 31))
    assert 2 * len(positions(long)) < run.position


def test_only_entries_that_are_old_enough_and_below_the_base_are_removed(
    desk: Rig, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "ENTRIES", 7)
    run = desk.advance(desk.start("a")).id
    settings.SIGNOFF_HISTORY_DAYS = None
    assert shortened() == 0
    settings.SIGNOFF_HISTORY_DAYS = 0.5
    assert shortened() == 0
    settings.SIGNOFF_HISTORY_DAYS = 0.0
    stop = threading.Event()
    stop.set()
    assert shortened(stop) == 0
    Run.objects.filter(id=run).update(status="quarantined")
    assert shortened() == 0
    Run.objects.filter(id=run).update(status="suspended", legal_hold={"by": "ada"})
    assert shortened() == 0
    Run.objects.filter(id=run).update(legal_hold=None)
    with monkeypatch.context() as patch:
        patch.setattr(FakeApprovals, "is_held", lambda *_, **__: True)  # by the audit
        assert shortened() == 0
    base = CompactionBase.objects.get(run=run).position
    with pool.open_own() as own:
        fifth = [entry.at for _, entry in journal.read_history(own, run).entries][4]
        assert journals.shorten(own, run, fifth) == 4
    assert shortened() == base - 5  # in several transactions
    assert positions(run)[0] == base
    assert shortened() == 0


def test_a_sweeper_that_dies_or_comes_second_changes_nothing(
    desk: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = desk.advance(desk.start("a")).id
    with monkeypatch.context() as patch:
        around(patch, journal, "delete_until", after=lambda *_, **__: die())
        with pytest.raises(Death):
            shortened()
    assert (positions(run)[0], Pruning.objects.exists()) == (1, False)
    assert findings(run) == []
    first: list[int] = []

    def be_faster(*_: object, **__: object) -> None:
        if not first:
            first.append(0)
            first.append(shortened())

    with monkeypatch.context() as patch:  # both have read the same entries
        around(patch, journals, "_delete", before=be_faster)
        assert shortened() == 0
    assert first[1] > 10
    assert findings(run) == []
    assert desk.answer(run).status == "suspended"


OTHER_STATE = (
    "UPDATE runtime_pruning SET (state, state_mac, state_key_id) ="
    " (SELECT body, mac, key_id FROM runtime_compactionbase)"
)
WITHOUT_FIRST = (
    "DELETE FROM runtime_journalentry"
    " WHERE position = (SELECT min(position) FROM runtime_journalentry)"
)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE runtime_pruning SET position = position + 1", "mark of the journal does not"),
        ("UPDATE runtime_pruning SET head = 'x' || head", "mark of the journal does not verify"),
        ("UPDATE runtime_pruning SET at = at - interval '1 day'", "mark of the journal does not"),
        ("DELETE FROM runtime_pruning", "journal entry 1 is missing"),
        ("UPDATE runtime_pruning SET state = replace(state, 'so far', 'so near')", "verify"),
        ("UPDATE runtime_pruning SET state = NULL", "the state at the prune mark is missing"),
        (OTHER_STATE, "the continuation belongs to another run or position"),
        (WITHOUT_FIRST, "is missing"),
    ],
)
def test_another_beginning_is_refused(desk: Rig, long: UUID, statement: str, problem: str) -> None:
    with pool.open_own() as own:
        own.execute(statement)
    assert any(problem in one for one in findings(long)), findings(long)
    with pytest.raises(Tampered):
        fork(run=long, position=Run.objects.get(id=long).position, actor=ADA)
    if (
        "SET state" not in statement and statement is not OTHER_STATE
    ):  # a worker begins at the run's continuation
        assert desk.answer(long).status == "quarantined"


def test_a_signed_state_of_another_journal_is_refused(long: UUID) -> None:
    with pool.open_own() as own:
        state = replace(journal.read_history(own, long).start, head="0" * 32)
        own.execute(
            "UPDATE runtime_pruning SET state = %(c_body)s, state_mac = %(c_mac)s,"
            " state_key_id = %(c_key_id)s",
            continuations.build_state_parameters(state),
        )
    assert any("is not that of its entry" in one for one in findings(long))


def test_a_fork_begins_where_history_does(desk: Rig, long: UUID) -> None:
    begins = positions(long)[0]
    for position in (1, begins - 1):
        with pytest.raises(HistoryRemoved) as refused:
            fork(run=long, position=position, actor=ADA)
        assert f"History before entry {begins} was removed on 20" in refused.value.detail
        assert refused.value.extra["begins"] == begins
    first = refused.value.extra["first"]
    assert isinstance(first, int)
    assert refused.value.detail.endswith(f": entry {first} is the first one that can be forked.")
    made = fork(run=long, position=first, actor=ADA)
    assert desk.advance(made).status == "suspended"
    assert findings(made) == []


def test_a_failed_run_is_retried_from_its_base(desk: Rig, long: UUID) -> None:
    real = desk.effects.agents["a"]
    desk.effects.agents["a"] = lambda _: ModelFailure(error="no")
    failed = desk.answer(long)
    assert failed.status == "failed"
    desk.effects.agents["a"] = real
    interventions.retry(run=long, reason="again", actor=ADA)
    assert StoredContinuation.objects.get(run=long).position == Run.objects.get(id=long).position
    assert findings(long) == []
    shortened()
    assert desk.advance(long).status == "suspended"


MANY = 1_000  # calls, with two entries each


@pytest.mark.slow
def test_a_run_of_many_steps_keeps_few_rows_and_is_resumed_from_them(
    desk: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    held: list[int] = []

    def look(request: ToolRequest) -> ToolResult:
        if request.args["n"] % 100 == 0:
            shortened()
            with pool.open_own() as own:
                found = own.execute("SELECT count(*) FROM runtime_journalentry").fetchone()
            rows.append(found[0] if found else 0)
        return ToolResult(value="x" * 50)

    monkeypatch.setattr(commit, "MAX_CHARACTERS", 10_000)
    around(
        monkeypatch, StepWriter, "_committed", before=lambda one, *_: held.append(len(one._rows))
    )
    desk.effects.agents["a"] = plays(MANY + 4, gates_from=MANY)
    desk.effects.tools["read"] = FakeTool(effect=EffectClass.READ, body=look)
    run = desk.advance(desk.start("a"))
    assert run.status == "suspended"
    assert run.position > 2 * MANY
    assert max(rows) < 300, rows
    assert max(held) < 300  # also in the memory of its worker
    shortened()
    loaded: list[int] = []
    with monkeypatch.context() as patch:
        around(
            patch, StoredRun, "state", before=lambda one, *_, **__: loaded.append(len(one.entries))
        )
        assert desk.answer(run.id).status == "completed"
    assert max(loaded) < 50
    assert findings(run.id) == []


def down(*_: object, **__: object) -> None:
    raise ObjectStoreDown("down")


@pytest.mark.usefixtures("object_store")
def test_removed_entries_are_archived_where_runs_are(
    desk: Rig, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_ARCHIVE = parse("30")
    monkeypatch.setattr(journals, "ENTRIES", 20)
    run = desk.advance(desk.start("a")).id
    whole = [
        (item.position, item.events) for item in entries.read_journal_page(run, limit=99).items
    ]
    with monkeypatch.context() as patch:
        around(patch, journal, "delete_until", after=lambda *_, **__: die())
        with pytest.raises(Death):
            shortened()
    with monkeypatch.context() as patch:
        around(patch, sealed_files, "write", before=down)
        assert shortened() == 0
    assert positions(run)[0] == 1
    assert findings(run) == []
    assert shortened() > 10
    kept = ArchivedEntries.objects.filter(last__isnull=False).order_by("first")
    assert [(one.first, one.last) for one in kept] == [(1, positions(run)[0] - 1)]
    page = entries.read_journal_page(run, limit=9)
    assert page.next == "9"
    rest = entries.read_journal_page(run, limit=99, cursor=9)
    assert [(one.position, one.events) for one in (*page.items, *rest.items)] == whole
    assert findings(run) == []
    desk.answer(run)
    assert shortened() > 10
    assert findings(run) == []
    beginning = lines.read_remaining(run).beginning
    assert beginning is not None
    assert beginning.is_archived
    first, *_, last = kept.values("place", "first", "last")
    ArchivedEntries.objects.filter(place=last["place"]).delete()
    assert findings(run) == [
        f"archive: the archive lacks entries {last['first']} to {last['last']}"
    ]
    with pool.open_own() as own:
        archived_entries.drop_all(own, run)
        objects.delete_dropped(own, threading.Event())
    assert not ArchivedEntries.objects.exists()
    store = wiring.find_object_store()
    assert store is not None
    assert store.get(first["place"]) is None


# With real approvals and pages


@pytest.fixture
def waiting(office: Office) -> UUID:
    return long_office_run(office)


def test_an_open_request_of_a_removed_entry_is_shown_and_decided(
    office: Office, waiting: UUID, cast: Cast
) -> None:
    approval, begins = office.request(waiting), positions(waiting)[0]
    line = f"History before entry {begins} was removed on"
    bea, ada = Client(), Client()
    bea.force_login(cast.bea)
    ada.force_login(cast.ada)
    page = bea.get(f"/a/{approval.id}/").content.decode()
    assert "newhire" in page
    assert line in page
    for address in ("", "?tab=transcript"):
        page = bea.get(f"/runs/{waiting}/{address}").content.decode()
        assert line in page
        assert "set_privileges" in page
    page = ada.get(f"/runs/{waiting}/fork/1/").content.decode()
    assert line in page
    assert "is the first one that can be forked" in page
    assert "Create fork" not in page
    detail = ada.get(f"/api/v1/runs/{waiting}").json()
    assert detail["history_begins"] == begins
    assert detail["history_removed_at"] is not None
    refused = ada.post(
        f"/api/v1/runs/{waiting}/fork", {"position": 1}, content_type="application/json"
    )
    assert (refused.status_code, refused.json()["code"]) == (409, "history_removed")
    assert findings(waiting) == []
    run = office.approve(waiting)
    assert (run.status, run.output) == ("completed", '"done"')
    assert office.started(waiting) == 1
    said = statements.read(Approval.objects.get(run=waiting))
    assert (said.by, said.verdict) == ("bea", Verdict.APPROVE)
    assert findings(waiting) == []
    assert bea.get(f"/a/{approval.id}/").status_code == 200
