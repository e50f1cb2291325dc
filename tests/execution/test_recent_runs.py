"""A process that released a long run last reads and verifies its entries once, and compares them each time."""

from typing import Any
from uuid import UUID

import pytest

from runtime.core.documents.conversations import Conversations
from runtime.execution import recent_runs
from runtime.execution.recent_runs import RecentRuns
from runtime.keyring import macs
from runtime.models import JournalEntry
from runtime.ports.effects import ToolResult
from runtime.store import steps
from runtime.store.pool import Connection
from runtime.store.tables import continuations
from runtime.store.tables.journal import Row
from tests.support.engine import MakeBench, bodies, pause, resume
from tests.support.fake_ports import FakeTool, ask, say, turns

RUN, OTHER = UUID(int=1), UUID(int=2)
SCRIPT = turns(*(ask(("t", {"n": n})) for n in range(4)), say("done"))


def read(count: int) -> Conversations:
    found = Conversations()
    for _ in range(count):
        found.read("{}")
    return found


def rows(bodies: str) -> tuple[Row, ...]:
    return tuple((at, body, f"mac {body}", "key") for at, body in enumerate(bodies, start=1))


def test_a_run_is_taken_as_it_was_kept_and_only_once() -> None:
    recent, conversations = RecentRuns(), read(2)
    assert recent.put(RUN, rows("ab"), conversations)
    assert not recent.pop(OTHER, rows("ab")).rows
    known = recent.pop(RUN, rows("abc"))
    assert (known.rows, known.conversations) == (rows("ab"), conversations)
    assert not recent.pop(RUN, rows("abc")).rows


@pytest.mark.parametrize(("count", "found"), [(2, "a"), (2, "ax"), (2, ""), (0, "ab"), (3, "ab")])
def test_other_unread_or_unwritten_entries_are_read_anew(count: int, found: str) -> None:
    recent = RecentRuns()
    recent.put(RUN, rows("ab"), read(count))
    assert not recent.pop(RUN, rows(found)).rows


@pytest.mark.parametrize("column", range(4))
def test_rows_that_differ_in_any_column_are_verified_anew(column: int) -> None:
    recent, (first, second) = RecentRuns(), rows("ab")
    recent.put(RUN, (first, second), read(2))
    changed = (*second[:column], "x", *second[column + 1 :])
    assert not recent.pop(RUN, (first, changed)).rows


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_runs, "MAX_CHARACTERS", 10)
    recent, runs = RecentRuns(), [UUID(int=number) for number in range(5)]
    for number in (0, 1, 2, 3, 2, 4):
        recent.put(runs[number], [(1, "abcd", "", "")], read(1))
    kept = [recent.pop(run, ((1, "abcd", "", ""),)).conversations.position for run in runs]
    assert kept == [0, 0, 1, 0, 1]


@pytest.fixture
def entries_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each entry that conversations have read."""
    found: list[str] = []
    really = Conversations.read

    def noted(self: Conversations, text: str) -> None:
        found.append(text)
        really(self, text)

    monkeypatch.setattr(Conversations, "read", noted)
    return found


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The position of each entry whose MAC is verified."""
    found: list[str] = []
    really = macs.verifier

    def noted(*first: str) -> Any:
        verifies = really(*first)

        def one(mac: str, key_id: str, position: str, *parts: str) -> bool:
            found.append(position)
            return verifies(mac, key_id, position, *parts)

        return one

    monkeypatch.setattr(macs, "verifier", noted)
    return found


@pytest.mark.parametrize("change", [{"body": "{}"}, {"mac": "00" * 16}, {"packed": b"0" * 40}])
def test_a_process_reads_and_verifies_each_entry_of_a_run_once(
    rig: MakeBench,
    continued: None,
    entries_read: list[str],
    verified: list[str],
    change: dict[str, Any],
) -> None:
    desk = rig({"a": SCRIPT}, t=FakeTool(gated=True, body=lambda _: ToolResult(value="x")))
    run = desk.advance(desk.start("a")).id
    for _ in range(3):
        assert desk.answer(run).status == "suspended"
    assert entries_read == bodies(JournalEntry.objects.filter(run_id=run).order_by("position"))
    assert verified == ["1"]  # by the first claim; this process wrote the others
    JournalEntry.objects.filter(run_id=run, position=2).update(**change)
    assert desk.answer(run).status == "quarantined"
    assert verified[1:] == ["1", "2"]  # the first one that does not verify


def test_an_entry_of_an_unwritten_step_is_not_kept(
    rig: MakeBench, entries_read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused run is resumed just before the step that would release it; the entry written then is another."""
    desk = rig({"a": SCRIPT}, t=FakeTool(gated=True))
    monkeypatch.setattr(continuations, "needs_brief", lambda covered, tail, release: release)
    run, unwritten = desk.start("a"), list[str]()
    pause(run)
    commit = steps.commit

    def resumed(connection: Connection, step: steps.Step, *parts: Any, **options: Any) -> Any:
        if step.release and not unwritten:
            unwritten.append(step.entry.body)
            resume(run)
        return commit(connection, step, *parts, **options)

    monkeypatch.setattr(steps, "commit", resumed)
    assert desk.advance(run).status == "suspended"
    assert unwritten
    assert unwritten[0] in entries_read
    texts = bodies(JournalEntry.objects.filter(run_id=run).order_by("position"))
    assert entries_read[-len(texts) :] == texts
