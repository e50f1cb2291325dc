"""A process that released a long run last reads its entries once, and verifies them each time."""

from typing import Any
from uuid import UUID

import pytest

from runtime.core.documents.conversations import Conversations
from runtime.execution import recent_runs
from runtime.execution.recent_runs import RecentRuns
from runtime.models import JournalEntry
from runtime.ports.effects import ToolResult
from runtime.store import steps
from runtime.store.pool import Connection
from runtime.store.tables import continuations
from tests.support.engine import MakeBench, pause, resume
from tests.support.entries import bodies, body
from tests.support.fake_ports import FakeTool, ask, say, turns

RUN, OTHER = UUID(int=1), UUID(int=2)
SCRIPT = turns(*(ask(("t", {"n": n})) for n in range(4)), say("done"))


def read(count: int) -> Conversations:
    found = Conversations()
    for _ in range(count):
        found.read("{}")
    return found


def test_a_run_is_taken_as_it_was_kept_and_only_once() -> None:
    recent, conversations = RecentRuns(), read(2)
    assert recent.put(RUN, ["a", "b"], conversations)
    assert recent.pop(OTHER, ["a", "b"]).position == 0
    assert recent.pop(RUN, ["a", "b", "c"]) is conversations
    assert recent.pop(RUN, ["a", "b", "c"]).position == 0


@pytest.mark.parametrize(
    ("count", "texts"), [(2, ["a"]), (2, ["a", "x"]), (2, []), (0, ["a", "b"]), (3, ["a", "b"])]
)
def test_other_unread_or_unwritten_entries_are_read_anew(count: int, texts: list[str]) -> None:
    recent = RecentRuns()
    recent.put(RUN, ["a", "b"], read(count))
    assert recent.pop(RUN, texts).position == 0


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_runs, "MAX_CHARACTERS", 10)
    recent, runs = RecentRuns(), [UUID(int=number) for number in range(5)]
    for number in (0, 1, 2, 3, 2, 4):
        recent.put(runs[number], ["abcd"], read(1))
    assert [recent.pop(run, ["abcd"]).position for run in runs] == [0, 0, 1, 0, 1]


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


def test_a_process_reads_each_entry_of_a_run_once_and_verifies_it_each_time(
    rig: MakeBench, continued: None, entries_read: list[str]
) -> None:
    desk = rig({"a": SCRIPT}, t=FakeTool(gated=True, body=lambda _: ToolResult(value="x")))
    run = desk.advance(desk.start("a")).id
    for _ in range(3):
        assert desk.answer(run).status == "suspended"
    assert entries_read == bodies(JournalEntry.objects.filter(run_id=run).order_by("position"))
    edited = body(run_id=run, position=2).replace('{"schema":', '{ "schema":')
    JournalEntry.objects.filter(run_id=run, position=2).update(body=edited)
    assert desk.answer(run).status == "quarantined"


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
