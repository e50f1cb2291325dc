"""Old and new workers side by side: which worker continues a run, which one releases it, and the entries written."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from runtime.core.documents import codec, continuations
from runtime.core.run.events import AgentChange
from runtime.core.values.enums import EffectClass, Verdict
from runtime.errors import LeaseLost
from runtime.execution.worker import MAX_PAUSE_SECONDS, RunBackoff
from runtime.models import Gate, JournalEntry, Run
from runtime.ports.agents import VersionChange
from runtime.ports.effects import Outcome, ToolRequest, Unknown
from runtime.store import loading
from runtime.store.pool import Connection
from tests.support.calls import around
from tests.support.engine import (
    RARELY,
    MakeBench,
    Rig,
    at_failpoint,
    cancel,
    events,
    later,
    lose,
    pause,
    resume,
    set_clock,
    types,
)
from tests.support.fake_ports import FakeEffects, FakeTool, ask, say, turns

OLD = "sha256:a"  # the fingerprint of the agent a in the fake effects
NEW = "sha256:a2"
SCRIPT = turns(ask(("t", {"x": 1})), say("done"))
ADDED = AgentChange(part="tool wave", before=None, after={"name": "wave"}, asks=False)


def _release(
    effects: FakeEffects, *changes: AgentChange, older: bool = False, writes: tuple[str, ...] = ()
) -> None:
    """Give this worker another version of the agent a from now on."""
    effects.released["a"] = NEW
    effects.changes["a", OLD] = VersionChange(
        agent=effects.agent("a"), changes=changes, older=older, writes=writes
    )


def _suspended(rig: MakeBench) -> tuple[Rig, UUID]:
    desk = rig({"a": SCRIPT}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a"))
    assert run.status == "suspended"
    return desk, run.id


def _another(rig: MakeBench, desk: Rig, agent: str = "a") -> Rig:
    """A worker that has the same database and the agent as it first was."""
    other = rig({agent: SCRIPT}, t=FakeTool(gated=True))
    other.approvals.requests = desk.approvals.requests
    return other


@contextmanager
def _next_release() -> Iterator[None]:
    """Let this process read and write documents as an artificial next release would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "SCHEMA", 2)
        patch.setattr(codec, "BEGINNING", '{"schema":2,')
        patch.setattr(continuations, "_BRIEF", '{"schema":2,"told":')
        patch.setitem(codec.UPCASTERS, 1, lambda document: document)
        yield


@pytest.mark.parametrize("newer", ["its agent", "its entries"])
def test_an_old_worker_leaves_a_run_untouched_and_does_not_spin(
    rig: MakeBench, continued: None, hints: list[tuple[UUID, str]], newer: str
) -> None:
    desk, run = _suspended(rig)
    new = _another(rig, desk)
    release: Callable[[], AbstractContextManager[None]] = nullcontext
    if newer == "its agent":
        _release(desk.effects, ADDED, older=True)
    else:
        release = _next_release
        pause(run)
        with release():
            assert new.advance(run).status == "paused"
        resume(run)
    desk.decide(desk.open_gates(run)[0].id, Verdict.APPROVE)
    with release():
        entries = types(run)
    before, now = Run.objects.get(id=run), 100.0
    desk.context = dataclasses.replace(desk.context, backoff=RunBackoff(clock=lambda: now))
    hints.clear()
    for _ in range(200):
        found = desk.advance(run)
        now += 0.01
    assert (found.status, found.owner) == (before.status, None)
    assert (found.epoch - before.epoch, len(hints)) == (2, 2)
    with release():
        assert types(run) == entries
        assert new.advance(run).status == "completed"
    assert (len(new.effects.calls), desk.effects.calls) == (1, [])


def test_a_run_whose_agent_is_gone_waits_and_can_be_cancelled(
    rig: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    desk, run = _suspended(rig)
    other = _another(rig, desk, "b")
    desk.decide(desk.open_gates(run)[0].id, Verdict.APPROVE)
    for _ in range(2):
        left = other.advance(run)
        assert (left.status, left.owner, left.due_at is None) == ("suspended", None, False)
    assert "left unchanged for another worker: a\n" in caplog.text
    cancel(run, "its agent is gone")
    found = other.advance(run)
    assert (found.status, found.reason) == ("cancelled", "its agent is gone")
    assert other.effects.calls == []
    assert not Gate.objects.filter(run=run, state="open").exists()


@pytest.mark.usefixtures("short_lease")
@pytest.mark.parametrize("effect", [EffectClass.READ, EffectClass.IDEMPOTENT, EffectClass.WRITE])
def test_a_call_that_is_or_was_a_write_is_not_repeated(rig: MakeBench, effect: EffectClass) -> None:
    """The class changed while the worker was down: to a write, or from a write to a read."""

    def body(request: ToolRequest) -> Outcome:
        desk.held(request.run).lost.set()
        return Unknown(error="its worker died")

    desk = rig({"a": SCRIPT}, t=FakeTool(effect=effect, body=body))
    run = desk.start("a")
    assert desk.advance(run).status == "running"
    lose(run)
    if effect is EffectClass.WRITE:
        desk.effects.tools["t"] = FakeTool(effect=EffectClass.READ)
    _release(desk.effects, ADDED, writes=() if effect is EffectClass.WRITE else ("t",))
    assert desk.advance(run).status == "suspended"
    assert "OutcomeUnknown" in types(run)
    assert len(desk.effects.calls) == 1
    assert [gate.kind for gate in desk.open_gates(run)] == ["in_doubt"]
    if effect is EffectClass.WRITE:
        assert desk.approvals.requests[-1].effect is EffectClass.WRITE


def test_a_refusal_holds_longer_each_time_and_not_against_mail() -> None:
    now = 100.0
    backoff, run = RunBackoff(clock=lambda: now), uuid4()
    assert backoff.find_skipped_signal(run) is None
    pauses = []
    for _ in range(9):
        backoff.add(run, signal_version=1)
        began = now
        while backoff.find_skipped_signal(run) == 1:
            now += 0.5
        pauses.append(now - began)
    assert pauses == [1, 2, 4, 8, 16, 32, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS]
    backoff.add(run, signal_version=1)
    assert backoff.find_skipped_signal(run) == 1
    assert backoff.forward_once(run) is False
    now += MAX_PAUSE_SECONDS
    assert [backoff.forward_once(run) for _ in range(3)] == [True, False, False], "one hint a pause"
    backoff.drop(run)
    assert backoff.find_skipped_signal(run) is None


# The version gate

INSTRUCTIONS = AgentChange(part="instructions", before="Do.", after="Do not.", asks=True)


def _asked(rig: MakeBench) -> tuple[Rig, UUID, Gate]:
    """A run whose agent has changed so much that a version gate opens, with its approval given before."""
    desk, run = _suspended(rig)
    _release(desk.effects, INSTRUCTIONS, ADDED)
    assert desk.answer(run).status == "suspended"
    (gate,) = desk.open_gates(run)
    return desk, run, gate


def test_an_incompatible_version_opens_a_gate_with_the_changes(rig: MakeBench) -> None:
    desk, run, gate = _asked(rig)
    assert (gate.kind, gate.call, gate.path) == ("version", "", ["a"])
    snapshot = desk.approvals.requests[-1]
    assert snapshot.sentence == "a is another version than when it began: instructions"
    assert (snapshot.args["before"], snapshot.args["after"]) == (OLD, NEW)
    assert snapshot.args["changes"][0] == {
        "part": "instructions",
        "before": "Do.",
        "after": "Do not.",
        "asks": True,
    }
    assert desk.effects.calls == []
    assert "AgentChanged" not in types(run)
    desk.decide(gate.id, Verdict.CONTINUE)
    old = _another(rig, desk)
    agent = old.effects.agent("a")
    old.effects.changes["a", NEW] = VersionChange(agent=agent, changes=(INSTRUCTIONS,), older=True)
    before = types(run)
    assert old.advance(run).status == "suspended"
    assert types(run) == before, "an old worker leaves it alone"
    third = _another(rig, desk)
    third.effects.released["a"] = "sha256:a3"
    agent = third.effects.agent("a")
    for version in (OLD, NEW):
        third.effects.changes["a", version] = VersionChange(agent=agent, changes=(INSTRUCTIONS,))
    assert third.advance(run).status == "suspended", "the decision is no word on a third version"
    assert Gate.objects.get(id=gate.id).state == "closed"
    (again,) = third.open_gates(run)
    assert third.approvals.requests[-1].args["after"] == "sha256:a3"
    third.decide(again.id, Verdict.CONTINUE)
    assert third.advance(run).status == "completed"
    (changed,) = [event for event in events(run) if event["type"] == "AgentChanged"]
    assert (changed["before"], changed["fingerprint"]) == (OLD, "sha256:a3")
    assert types(run)[types(run).index("AgentChanged") - 1] == "GateDecided"
    assert (len(third.effects.calls), desk.effects.calls) == (1, [])


@pytest.mark.parametrize("agent", ["a", "b"])
def test_to_stop_at_a_version_gate_ends_the_run(rig: MakeBench, agent: str) -> None:
    desk, run, gate = _asked(rig)
    desk.decide(gate.id, Verdict.STOP, "not with these instructions")
    worker = desk if agent == "a" else _another(rig, desk, agent)
    found = worker.advance(run)
    assert (found.status, found.reason) == ("cancelled", "not with these instructions")
    assert desk.effects.calls == []


def test_a_reverted_change_closes_its_version_gate(rig: MakeBench) -> None:
    desk, run, gate = _asked(rig)
    back = _another(rig, desk)
    Run.objects.filter(id=run).update(due_at="2020-01-01T00:00:00Z")
    assert back.advance(run).status == "completed"
    assert Gate.objects.get(id=gate.id).state == "closed"
    assert "AgentChanged" not in types(run)


def test_approved_changes_repeat_no_write(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    unclear = FakeTool(
        effect=EffectClass.IDEMPOTENT, body=lambda _: Unknown(error="cut off"), retry=RARELY
    )
    agents = {"a": turns(ask(("t", {}), ("u", {})), say("done"))}
    desk = rig(agents, t=unclear, u=FakeTool(gated=True))
    run = desk.advance(desk.start("a")).id
    _release(desk.effects, INSTRUCTIONS, writes=("t",))
    desk.answer(run)
    desk.answer(run, Verdict.CONTINUE)
    made = len(desk.effects.calls)
    set_clock(monkeypatch, lambda: timezone.now() + timedelta(hours=2))
    later(run)
    assert desk.advance(run).status == "suspended"
    assert len(desk.effects.calls) == made + 1
    assert Gate.objects.get(run=run, state="open").kind == "in_doubt"


def test_a_stop_that_was_taken_back_leaves_the_run_untouched(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, hints: list[tuple[UUID, str]]
) -> None:
    desk, run, gate = _asked(rig)
    desk.decide(gate.id, Verdict.STOP, "no")
    stranger = rig({"b": SCRIPT})

    def take_back(_: object, connection: Connection, *__: object, **___: object) -> None:
        connection.execute("DELETE FROM runtime_signal")
        connection.execute("UPDATE runtime_run SET mailbox = mailbox + 1")

    around(monkeypatch, loading, "claim", after=take_back)
    hints.clear()
    entries = JournalEntry.objects.filter(run_id=run).count()
    assert stranger.advance(run).status == "suspended"
    assert JournalEntry.objects.filter(run_id=run).count() == entries
    assert [sent for sent, _ in hints] == [run]  # for one that has the agent


@pytest.mark.parametrize("moment", ["before", "written", "committed"])
def test_a_crash_around_an_agent_change_applies_it_once(rig: MakeBench, moment: str) -> None:
    desk, run = _suspended(rig)
    _release(desk.effects, ADDED)
    Run.objects.filter(id=run).update(due_at="2020-01-01T00:00:00Z")

    def leave() -> None:
        raise LeaseLost

    with at_failpoint(f"{moment}:AgentChanged", leave):
        desk.advance(run)
    assert types(run).count("AgentChanged") == (0 if moment == "before" else 1)
    Run.objects.filter(id=run).update(owner=None, due_at="2020-01-01T00:00:00Z")
    assert desk.answer(run).status == "completed"
    (changed,) = [event for event in events(run) if event["type"] == "AgentChanged"]
    assert (changed["frame"], changed["before"], changed["fingerprint"]) == ("0", OLD, NEW)
    assert changed["changes"] == [
        {"part": "tool wave", "before": None, "after": {"name": "wave"}, "asks": False}
    ]
    assert len(desk.effects.calls) == 1
