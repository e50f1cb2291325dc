"""Forks: a new run from a copy of another one's state, which itself is left alone."""

import json
import threading
from collections import Counter
from uuid import UUID, uuid4

import pytest

from runtime.control import verification
from runtime.control.fork import fork as fork_run
from runtime.core.continuation import Continuation
from runtime.core.enums import EffectClass, Verdict
from runtime.errors import InvalidInput, NoSuchRun, NotQuiescent, Tampered
from runtime.models import Blob, BlobReference, Gate, JournalEntry, Run
from runtime.models import Continuation as ContinuationRow
from runtime.ports.access import Actor
from runtime.ports.effects import ToolResult
from runtime.store import pool
from runtime.store.tables import blobs, journal
from runtime.upkeep import retention
from tests.support.engine import MakeBench, Rig
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import in_thread

EVE = Actor(person="eve")
GATED = FakeTool(gated=True)


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    """An agent that sends, then asks for two payments, then answers; its child looks."""
    return rig(
        {
            "a": turns(
                ask(("send", {"to": "x"}), ("child", {})),
                ask(("pay", {"sum": 1}), ("pay", {"sum": 2})),
                say("done"),
            ),
            "child": turns(ask(("look", {})), say("seen")),
        },
        send=FakeTool(),
        look=FakeTool(effect=EffectClass.READ),
        pay=GATED,
    )


def fork(run: UUID, position: int) -> UUID:
    return fork_run(run=run, position=position, actor=EVE)


def end(desk: Rig, run: UUID) -> Run:
    """Approve every request until the run has none."""
    row = desk.advance(run)
    while row.ended_at is None:
        for gate in desk.open_gates(run):
            desk.decide(gate.id, Verdict.APPROVE)
        row = desk.advance(run)
    return row


def stored(run: UUID) -> list[object]:
    """Return every stored byte of a run, except the columns that a lease changes."""
    return [
        Run.objects.values("status", "position", "head", "base", "mailbox", "due_at").get(id=run),
        list(JournalEntry.objects.filter(run_id=run).order_by("position").values()),
        list(ContinuationRow.objects.filter(run=run).values()),
        list(Gate.objects.filter(run=run).order_by("id").values()),
    ]


def starts(desk: Rig, run: UUID) -> Counter[str]:
    return Counter(call.tool for call in desk.effects.calls if call.run == run)


def sound(*runs: UUID) -> bool:
    return all(verification.verify(run).is_consistent for run in runs)


def test_a_fork_repeats_nothing_that_is_recorded_and_asks_again(desk: Rig) -> None:
    run = desk.advance(desk.start("a", {"n": 1}))
    new = fork(run.id, run.position)
    row = Run.objects.get(id=new)
    assert (new.version, row.requester, row.business_key, row.position) == (7, "eve", None, 1)
    assert (row.agent, json.loads(row.input), row.status) == ("a", {"n": 1}, "queued")
    at = {"position": str(run.position)}
    assert desk.approvals.notes == [
        (run.id, EVE, "forked", {"into": str(new), **at}),
        (new, EVE, "started", {"fork of": str(run.id), **at}),
    ]
    assert sound(run.id, new)
    assert desk.advance(new).status == "suspended"
    assert starts(desk, new) == {}
    assert len(desk.open_gates(new)) == 2
    assert not {gate.id for gate in desk.open_gates(new)} & {g.id for g in desk.open_gates(run.id)}
    assert [p.requester for p in desk.approvals.snapshots] == ["ada", "ada", "eve", "eve"]
    ended = end(desk, new)
    assert (ended.status, ended.output) == ("completed", '"done"')
    assert starts(desk, new) == {"pay": 2}
    assert sound(run.id, new)


def test_a_fork_with_open_gates_leaves_the_original_decidable(desk: Rig) -> None:
    run = desk.advance(desk.start("a")).id
    before = stored(run)
    new = fork(run, Run.objects.get(id=run).position)
    end(desk, new)
    assert stored(run) == before
    first, second = desk.open_gates(run)
    desk.decide(first.id, Verdict.APPROVE)
    desk.decide(second.id, Verdict.DENY, "no")
    assert desk.advance(run).status == "completed"
    assert starts(desk, run) == {"send": 1, "look": 1, "pay": 1}
    assert sound(run, new)


def test_only_quiescent_entries_can_be_forked(desk: Rig) -> None:
    run = end(desk, desk.start("a"))
    done, refused = [], []
    for position in range(1, run.position + 1):
        try:
            done.append(fork(run.id, position))
        except NotQuiescent:
            refused.append(position)
    assert len(done) >= 4
    assert refused[-1] == run.position
    for new in done:
        assert sound(new)
        assert end(desk, new).status == "completed"
        assert sound(new)
    assert sound(run.id)
    keys = [call.key for call in desk.effects.calls if call.tool == "send"]
    assert f"{run.id}/0/c1.0" in keys
    assert len(set(keys)) == len(keys) > 1


def test_a_fork_requires_an_existing_verified_entry(desk: Rig) -> None:
    run = desk.advance(desk.start("a"))
    with pytest.raises(InvalidInput, match="1 to 7"):
        fork(run.id, run.position + 1)
    with pytest.raises(NoSuchRun):
        fork(uuid4(), 1)
    JournalEntry.objects.filter(run_id=run.id, position=2).update(body="{}")
    with pytest.raises(Tampered):
        fork(run.id, 3)
    assert Run.objects.count() == 1
    assert Run.objects.get(id=fork(run.id, 1)).position == 1


def blocked(own: pool.Connection) -> bool | None:
    sql = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return own.execute(sql).rowcount > 0 or None


def test_retention_waits_with_the_contents_that_a_fork_reads(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value="x" * 70_000))
    desk = rig({"a": turns(ask(("t", {})), ask(("t", {"n": 2})), say("done"))}, t=big)
    run = desk.advance(desk.start("a")).id
    Blob.objects.update(used_at="2020-01-01T00:00Z")

    def remove() -> None:
        retention.erase(run)
        with pool.own() as own:
            blobs.collect(own, 1000)

    really, removing = journal.state_at, list[threading.Thread]()

    def state_at(connection: pool.Connection, of: UUID, position: int) -> Continuation:
        found = really(connection, of, position)
        removing.append(in_thread(remove))
        with pool.own() as own:
            until(lambda: blocked(own) or not removing[0].is_alive() or None, "retention to wait")
        return found

    monkeypatch.setattr(journal, "state_at", state_at)
    forked = fork(run, 4)
    removing[0].join()
    assert desk.advance(forked).status == "completed"


def test_a_fork_that_refers_to_contents_that_are_gone_is_refused(rig: MakeBench) -> None:
    big = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value="x" * 70_000))
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=big)
    run = desk.advance(desk.start("a")).id
    assert set(BlobReference.objects.values_list("run_id", flat=True)) == {run}
    BlobReference.objects.all().delete()
    Blob.objects.all().delete()
    with pytest.raises(Tampered, match="contents are missing: 1"):
        fork(run, 4)
