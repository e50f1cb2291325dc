"""Bytes of a run: its journal, its continuation, and the bytes written on the way."""

from base64 import b64encode
from random import Random
from uuid import UUID

import pytest

from runtime.core.documents.conversations import Conversations, Told
from runtime.core.enums import EffectClass
from runtime.errors import LeaseLost
from runtime.models import Continuation, JournalEntry, Run
from runtime.ports.effects import ToolResult
from runtime.queries import runs
from runtime.store import failpoints, steps
from runtime.store.tables import continuations
from runtime.store.tables import journal as entries
from tests.support.calls import around
from tests.support.engine import MakeBench, Rig, bodies, lose
from tests.support.fake_ports import FakeTool, ask, say, turns

GATES = 50
TEXT = b64encode(Random(1).randbytes(2_250)).decode()  # 3,000 characters that nothing makes shorter
PAYLOAD = GATES * 2 * len(TEXT)  # arguments and result of each call


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each continuation that is written."""
    sizes: list[int] = []

    def count(found: dict[str, object], *_: object) -> None:
        sizes.append(len(str(found["c_body"])))

    around(monkeypatch, continuations, "parameters", after=count)
    return sizes


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    calls = [ask(("t", {"text": TEXT, "n": n})) for n in range(GATES)]
    tool = FakeTool(gated=True, body=lambda request: ToolResult(value=TEXT))
    return rig({"a": turns(*calls, say("done"))}, t=tool)


def suspended(desk: Rig, gates: int) -> Run:
    """A run that waits at a gate after so many."""
    run = desk.advance(desk.start("a"))
    for _ in range(gates):
        run = desk.answer(run.id)
    assert run.status == "suspended"
    shown = runs.continuation(run.id) or {}
    assert (shown["position"], shown["head"]) == (run.position, run.head)
    (gate,) = desk.open_gates(run.id)
    assert [str(gate.id)] == [pending["gate"] for pending in shown["pending"]]
    return run


def journal(run: UUID) -> int:
    return sum(map(len, bodies(JournalEntry.objects.filter(run_id=run))))


def test_a_short_run_has_no_continuation_and_is_folded(desk: Rig) -> None:
    assert suspended(desk, 2).base == 0
    assert not Continuation.objects.exists()


def test_a_long_run_keeps_few_times_its_payload(desk: Rig, written: list[int]) -> None:
    run = suspended(desk, GATES - 2)
    kept = Continuation.objects.get(run=run)
    assert journal(run.id) + sum(written) <= 5 * PAYLOAD  # each time anew would be 54 times
    assert run.base == kept.position < run.position
    assert len(kept.body) == written[-1]
    assert max(written) < 3 * len(TEXT)  # the run's input and output are in its entries
    JournalEntry.objects.filter(run_id=run.id, position=run.position).update(body="{}")
    assert desk.answer(run.id).status == "quarantined"


LONG_TEXT = "x" * 50_000  # of which a few make a long run


def walking(rig: MakeBench, turns_: int) -> Rig:
    """One that never suspends."""
    calls = [ask(("t", {"n": n})) for n in range(turns_)]
    tool = FakeTool(effect=EffectClass.READ, body=lambda _: ToolResult(value=LONG_TEXT))
    return rig({"a": turns(*calls, say("done"))}, t=tool)


@pytest.mark.parametrize(
    ("whole", "written_"),
    [(False, 6), (True, 3)],  # of 2 MB: every 256 KB, or beyond 256 KB, 512 KB and 1 MB
)
def test_a_running_run_writes_few_continuations(
    rig: MakeBench, written: list[int], monkeypatch: pytest.MonkeyPatch, whole: bool, written_: int
) -> None:
    if whole:
        monkeypatch.setattr(Conversations, "brief", lambda *_: None)
    desk = walking(rig, 40)
    run = desk.advance(desk.start("a"))
    assert (run.status, len(written)) == ("completed", written_)
    if whole:
        assert sum(written) <= 3 * journal(run.id)  # each has every result twice
    else:
        assert max(written) < 60_000  # the results of one turn, which is not over
    assert not Continuation.objects.filter(run=run).exists()


def test_a_step_that_is_built_again_is_read_again(
    rig: MakeBench, continued: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry that was read for its continuation was not written."""
    refused: list[int] = []
    told: list[Told | None] = []

    def overtake(_: object, step: steps.Step, *__: object, prepare: bool) -> steps.Result | None:
        if step.kind != "ToolStarted" or refused:
            return None
        refused.append(step.entry.position)
        return steps.Result.NEW_SIGNALS

    around(monkeypatch, steps, "commit", before=overtake)
    around(
        monkeypatch, continuations, "parameters", before=lambda _, left_out: told.append(left_out)
    )
    desk = walking(rig, 3)
    assert desk.advance(desk.start("a")).status == "completed"
    assert refused
    assert all(told)
    assert told


def test_a_takeover_folds_only_entries_since_the_continuation(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, results = walking(rig, 12), 0
    folded: list[int] = []

    def die(moment: str, kind: str, _: int) -> None:
        nonlocal results
        results += (moment, kind) == ("committed", "ToolStarted")
        if results == 8:
            raise LeaseLost

    run = desk.start("a")
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", die)
        desk.advance(run)
    row = Run.objects.get(id=run)
    assert 0 < row.base < row.position
    around(monkeypatch, entries, "_fold", before=lambda _, position, *__: folded.append(position))
    lose(run)
    assert desk.advance(run).status == "completed"
    assert folded[0] == row.base + 1


@pytest.mark.parametrize(
    ("covered", "tail", "release", "due"),
    [
        (300_000, 262_144, False, False),
        (0, 262_145, False, True),
        (0, 262_144, True, False),
        (262_144, 16_384, True, False),
        (262_144, 16_385, True, True),
        (245_759, 16_385, True, False),
    ],
)
def test_a_brief_continuation_is_due_after_many_bytes_or_release(
    covered: int, tail: int, release: bool, due: bool
) -> None:
    assert continuations.needs_brief(covered, tail, release=release) is due


@pytest.mark.parametrize(
    ("covered", "tail", "overdue"),
    [(0, 262_144, False), (0, 262_145, True), (300_000, 299_999, False), (300_000, 300_000, True)],
)
def test_a_continuation_is_overdue_when_the_run_has_doubled(
    covered: int, tail: int, overdue: bool
) -> None:
    assert continuations.needs_rewrite(covered, tail) is overdue
