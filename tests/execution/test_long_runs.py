"""Long runs: their compaction, the entries a process has read before, and the bytes that are stored."""

import json
from base64 import b64encode
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.control import verification
from runtime.core.documents import codec
from runtime.core.documents.continuations import Conversations, Lengths, decode_continuation
from runtime.core.run.continuation import Continuation as State
from runtime.core.run.reducer import make_initial_state
from runtime.core.values.call_options import CompactionOptions
from runtime.core.values.enums import EffectClass
from runtime.core.values.limits import MAX_SUMMARY
from runtime.errors import LeaseLost, Tampered
from runtime.execution import worker
from runtime.execution.worker import RecentRuns
from runtime.keyring import signatures
from runtime.models import CompactionBase, JournalEntry, Run, StoredContinuation
from runtime.ports.agents import AgentInfo
from runtime.ports.effects import ModelAnswer, ModelRequest, Outcome, ToolResult
from runtime.reads.entries import read_run_state
from runtime.store import failpoints, pool, steps
from runtime.store.tables import continuations
from runtime.store.tables import journal as entries
from runtime.store.tables.journal import Row
from runtime.store.tables.pruning import UNPRUNED
from tests.support.calls import around
from tests.support.engine import MakeBench, Rig, bodies, lose, pause, resume, types
from tests.support.fake_ports import FakeEffects, FakeTool, Script, ask, say, turns

READS = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value="x" * 500))
GATED = FakeTool(gated=True)


class Compacting(FakeEffects):
    """Agents whose frames are compacted."""

    def agent(self, name: str) -> AgentInfo:
        return replace(super().agent(name), compaction=CompactionOptions(messages=5))


def plays(tool: str, summary: str = "so far") -> Script:
    """Calls the tool six times, by the number of calls the messages tell of."""

    def reply(request: ModelRequest) -> Outcome:
        if request.summary:
            return ModelAnswer(reply=None, text=summary, usage={"input_tokens": 3})
        last = [m for m in request.messages if m["role"] == "model"][-1:]
        done = int(last[0]["calls"][0][1:].split(".")[0]) if last else 0
        return ask((tool, {"n": done + 1})) if done < 6 else say("done")

    return reply


@pytest.fixture
def desk(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr("tests.support.engine.FakeEffects", Compacting)
    return rig({"a": plays("read"), "g": plays("gated")}, read=READS, gated=GATED)


def test_compaction_writes_the_base_continuation(desk: Rig, continued: None) -> None:
    run = desk.advance(desk.start("g"))
    for _ in range(4):
        run = desk.answer(run.id)
    base, later = CompactionBase.objects.get(run=run), StoredContinuation.objects.get(run=run)
    assert 0 < base.position < later.position == run.position
    for kept in (base, later):
        assert "told" not in json.loads(kept.body), "it needs no entry that may be removed"
        assert decode_continuation(kept.body).position == kept.position
    with pool.pooled() as connection:
        state = continuations.load_base(connection, run.id)
    assert isinstance(state, State)
    assert state.frame("0").messages[1]["role"] == "summary"
    assert verification.verify(run.id).is_consistent


def test_a_worker_that_dies_while_summing_up_repeats_no_call(desk: Rig) -> None:
    """The worker loses its lease in the middle; another one requests only the summary again."""
    model = desk.effects.agents["a"]
    robbed: list[UUID] = []

    def reply(request: ModelRequest) -> Outcome:
        if request.summary and not robbed:
            robbed.append(request.run)
            with pool.open_own() as own:
                own.execute("UPDATE runtime_run SET epoch = epoch + 1, owner = %s", (uuid4(),))
        return model(request)

    desk.effects.agents["a"] = reply
    run = desk.start("a")
    desk.advance(run)
    before = types(run)
    assert "Compacted" not in before
    with pool.open_own() as own:
        own.execute("UPDATE runtime_run SET owner = NULL, due_at = now()")
    assert desk.advance(run).status == "completed"
    assert types(run)[: len(before)] == before
    assert [call.args["n"] for call in desk.effects.calls] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("text", [" ", "x" * (MAX_SUMMARY + 1)])
def test_a_summary_that_is_none_fails_the_frame_and_says_why(desk: Rig, text: str) -> None:
    desk.effects.agents["a"] = plays("read", summary=text)
    run = desk.advance(desk.start("a"))
    assert run.status == "failed"
    assert f"the summary has {len(text)} characters" in (run.reason or "")


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
    assert recent.put(RUN, rows("ab"), conversations, make_initial_state(RUN))
    assert not recent.pop(OTHER, rows("ab")).rows
    known = recent.pop(RUN, rows("abc"))
    assert (known.rows, known.conversations) == (rows("ab"), conversations)
    assert not recent.pop(RUN, rows("abc")).rows


def test_other_unread_or_unwritten_entries_are_read_anew() -> None:
    first, second = rows("ab")
    others = [rows(bodies) for bodies in ("a", "ax", "")]
    others += [(first, (*second[:column], "x", *second[column + 1 :])) for column in range(4)]
    for count, found in [(0, (first, second)), (3, (first, second)), *((2, one) for one in others)]:
        recent = RecentRuns()
        recent.put(RUN, (first, second), read(count), make_initial_state(RUN))
        assert not recent.pop(RUN, found).rows, found


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MAX_CHARACTERS", 10)
    recent, runs = RecentRuns(), [UUID(int=number) for number in range(5)]
    for number in (0, 1, 2, 3, 2, 4):
        recent.put(runs[number], [(1, "abcd", "", "")], read(1), make_initial_state(RUN))
    kept = [recent.pop(run, ((1, "abcd", "", ""),)).conversations.position for run in runs]
    assert kept == [0, 0, 1, 0, 1]


def test_short_runs_make_room_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MAX_RUNS", 2)
    recent, runs = RecentRuns(), [UUID(int=number) for number in range(3)]
    for run in runs:
        assert not recent.put(
            run, rows("a"), Conversations(), replace(make_initial_state(run), position=1)
        )
    assert [recent.pop(run, rows("a")).now is not None for run in runs] == [False, True, True]


def test_a_process_folds_the_entries_of_a_short_run_once(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = list[str]()
    around(monkeypatch, codec, "decode_entry", before=decoded.append)
    desk = rig({"a": SCRIPT}, t=FakeTool(gated=True, body=lambda _: ToolResult(value="x")))
    run = desk.advance(desk.start("a")).id
    decoded.clear()
    assert desk.answer(run).status == "suspended"
    assert decoded == []
    desk.context.recent.pop(run, ())
    before = JournalEntry.objects.filter(run_id=run).count()
    assert desk.answer(run).status == "suspended"
    assert len(decoded) == before


def test_conversations_that_read_an_unwritten_entry_are_not_kept() -> None:
    recent = RecentRuns()
    assert not recent.put(RUN, rows("a"), read(2), replace(make_initial_state(RUN), position=1))
    known = recent.pop(RUN, rows("a"))
    assert known.now is not None
    assert known.conversations.position == 0


def test_entries_up_to_the_later_of_continuation_and_kept_state_are_not_folded() -> None:
    def replayed(base: State, kept: State) -> State:
        found = entries.Entries(rows("ab"))  # which no release can read
        return entries.fold_entries(
            base, UNPRUNED, found, position=2, head="mac b", kept_state=kept
        )

    first = replace(make_initial_state(RUN), position=1, head="mac a")
    second = replace(first, position=2, head="mac b")
    assert replayed(second, first) is second
    assert replayed(first, second) is second
    with pytest.raises(Tampered, match="entry 1 is not that of the continuation"):
        replayed(replace(first, head="another"), second)


def test_a_kept_result_stays_as_it_was_journaled(rig: MakeBench) -> None:
    shared = ["x"]
    desk = rig({"a": SCRIPT}, t=FakeTool(gated=True, body=lambda _: ToolResult(value=shared)))
    run = desk.advance(desk.start("a")).id
    desk.answer(run)
    shared.append("by a later call")
    desk.answer(run)
    results = [turn for turn in desk.effects.models[-1].messages if turn["role"] == "results"]
    assert results[0]["results"][0]["content"] == ["x"]


@pytest.fixture
def entries_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each entry that conversations have read."""
    found: list[str] = []
    around(monkeypatch, Conversations, "read", before=lambda _, text: found.append(text))
    return found


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The position of each entry whose MAC is verified."""
    found: list[str] = []
    really = signatures.make_verifier

    def noted(*first: str) -> Any:
        verifies = really(*first)

        def one(mac: str, key_id: str, position: str, *parts: str) -> bool:
            found.append(position)
            return verifies(mac, key_id, position, *parts)

        return one

    monkeypatch.setattr(signatures, "make_verifier", noted)
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

    def resume_it(_: object, step: steps.Step, *__: object, **___: object) -> None:
        if step.release and not unwritten:
            unwritten.append(step.entry.body)
            resume(run)

    around(monkeypatch, steps, "commit", before=resume_it)
    assert desk.advance(run).status == "suspended"
    assert unwritten
    assert unwritten[0] in entries_read
    texts = bodies(JournalEntry.objects.filter(run_id=run).order_by("position"))
    assert entries_read[-len(texts) :] == texts


# The bytes of a run: its journal, its continuation, and those written on the way


GATES = 50
TEXT = b64encode(Random(1).randbytes(2_250)).decode()  # 3,000 characters that nothing makes shorter
PAYLOAD = GATES * 2 * len(TEXT)  # arguments and result of each call


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each continuation that is written."""
    sizes: list[int] = []

    def count(found: dict[str, object], *_: object) -> None:
        sizes.append(len(str(found["c_body"])))

    around(monkeypatch, continuations, "build_state_parameters", after=count)
    return sizes


@pytest.fixture
def many_gates(rig: MakeBench) -> Rig:
    calls = [ask(("t", {"text": TEXT, "n": n})) for n in range(GATES)]
    tool = FakeTool(gated=True, body=lambda request: ToolResult(value=TEXT))
    return rig({"a": turns(*calls, say("done"))}, t=tool)


def suspended(desk: Rig, gates: int) -> Run:
    """A run that waits at a gate after so many."""
    run = desk.advance(desk.start("a"))
    for _ in range(gates):
        run = desk.answer(run.id)
    assert run.status == "suspended"
    shown = read_run_state(run.id) or {}
    assert (shown["position"], shown["head"]) == (run.position, run.head)
    (gate,) = desk.open_gates(run.id)
    assert [str(gate.id)] == [pending["gate"] for pending in shown["pending"]]
    return run


def journal(run: UUID) -> int:
    return sum(map(len, bodies(JournalEntry.objects.filter(run_id=run))))


def test_a_short_run_has_no_continuation_and_is_folded(many_gates: Rig) -> None:
    assert suspended(many_gates, 2).base == 0
    assert not StoredContinuation.objects.exists()


@pytest.mark.slow
def test_a_long_run_keeps_few_times_its_payload(many_gates: Rig, written: list[int]) -> None:
    run = suspended(many_gates, GATES - 2)
    kept = StoredContinuation.objects.get(run=run)
    assert journal(run.id) + sum(written) <= 5 * PAYLOAD  # each time anew would be 54 times
    assert run.base == kept.position < run.position
    assert len(kept.body) == written[-1]
    assert max(written) < 3 * len(TEXT)  # the run's input and output are in its entries
    JournalEntry.objects.filter(run_id=run.id, position=run.position).update(body="{}")
    assert many_gates.answer(run.id).status == "quarantined"


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
        monkeypatch.setattr(Conversations, "shorten_continuation", lambda *_: None)
    desk = walking(rig, 40)
    run = desk.advance(desk.start("a"))
    assert (run.status, len(written)) == ("completed", written_)
    if whole:
        assert sum(written) <= 3 * journal(run.id)  # each has every result twice
    else:
        assert max(written) < 60_000  # the results of one turn, which is not over
    assert not StoredContinuation.objects.filter(run=run).exists()


def test_a_step_that_is_built_again_is_read_again(
    rig: MakeBench, continued: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry that was read for its continuation was not written."""
    refused: list[int] = []
    told: list[Lengths | None] = []

    def overtake(_: object, step: steps.Step, *__: object) -> steps.CommitResult | None:
        if step.kind != "ToolStarted" or refused:
            return None
        refused.append(step.entry.position)
        return steps.CommitResult.NEW_SIGNALS

    around(monkeypatch, steps, "commit", before=overtake)
    around(
        monkeypatch,
        continuations,
        "build_state_parameters",
        before=lambda _, left_out: told.append(left_out),
    )
    desk = walking(rig, 3)
    assert desk.advance(desk.start("a")).status == "completed"
    assert refused
    assert all(told)
    assert told


def test_a_takeover_folds_only_new_entries(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_continuation_is_due_after_many_bytes_and_in_brief_also_at_a_release() -> None:
    brief, whole = continuations.needs_brief, continuations.needs_rewrite
    assert not brief(300_000, 262_144, release=False)
    assert brief(0, 262_145, release=False)
    assert not brief(0, 262_144, release=True)
    assert not brief(262_144, 16_384, release=True)
    assert brief(262_144, 16_385, release=True)
    assert not brief(245_759, 16_385, release=True)
    assert not whole(0, 262_144)
    assert whole(0, 262_145)
    assert not whole(300_000, 299_999)
    assert whole(300_000, 300_000)
