"""Forks, which leave their original alone, and transfers of runs to another installation."""

import json
import threading
from collections import Counter
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.db import transaction

from runtime.control import verification
from runtime.control.forks import fork as fork_run
from runtime.control.transfer import export_run, import_run
from runtime.core.documents import export_file
from runtime.core.documents.codec import decode_stored_text
from runtime.core.values.enums import EffectClass, Verdict
from runtime.errors import (
    GateNotOpen,
    InvalidInput,
    NoSuchRun,
    NotAtRest,
    NotImportable,
    NotQuiescent,
    RunEnded,
    Tampered,
    TooLarge,
)
from runtime.models import BlobReference, Gate, JournalEntry, Run, StoredBlob, StoredContinuation
from runtime.ports.access import Actor
from runtime.ports.effects import ToolResult
from runtime.reads.journal import read_stored_entries
from runtime.store import pool
from runtime.store.tables import blobs, journal
from runtime.upkeep import retention
from tests.support.calls import around
from tests.support.elsewhere import Move
from tests.support.engine import MakeBench, Rig, bodies, cancel, pause
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.forged_exports import Sender
from tests.support.office import Target
from tests.support.people import until
from tests.support.threads import in_thread, wait_until_blocked

EVE = Actor(person="eve")
GATED = FakeTool(gated=True)
LARGE = FakeTool(body=lambda _: ToolResult(value="x" * 70_000))


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
        send=LARGE,
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


def bytes_of(run: UUID) -> list[object]:
    """Return every stored byte of a run, except the columns that a lease changes."""
    return [
        Run.objects.values("status", "position", "head", "base", "mailbox", "due_at").get(id=run),
        list(JournalEntry.objects.filter(run_id=run).order_by("position").values()),
        list(StoredContinuation.objects.filter(run=run).values()),
        list(Gate.objects.filter(run=run).order_by("id").values()),
    ]


def starts(desk: Rig, run: UUID) -> Counter[str]:
    return Counter(call.tool for call in desk.effects.calls if call.run == run)


def sound(*runs: UUID) -> bool:
    return all(verification.verify(run).is_consistent for run in runs)


def test_a_fork_repeats_nothing_asks_again_and_leaves_the_original_decidable(desk: Rig) -> None:
    run = desk.advance(desk.start("a", {"n": 1}))
    before = bytes_of(run.id)
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
    assert (starts(desk, new), len(desk.open_gates(new))) == ({}, 2)
    assert [p.requester for p in desk.approvals.requests] == ["ada", "ada", "eve", "eve"]
    ended = end(desk, new)
    assert (ended.status, ended.output) == ("completed", '"done"')
    assert starts(desk, new) == {"pay": 2}
    assert bytes_of(run.id) == before
    first, second = desk.open_gates(run.id)
    desk.decide(first.id, Verdict.APPROVE)
    desk.decide(second.id, Verdict.DENY, "no")
    assert desk.advance(run.id).status == "completed"
    assert starts(desk, run.id) == {"send": 1, "look": 1, "pay": 1}
    assert sound(run.id, new)


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
    BlobReference.objects.all().delete()
    StoredBlob.objects.all().delete()
    with pytest.raises(Tampered, match="contents are missing: 1"):
        fork(run.id, run.position)
    JournalEntry.objects.filter(run_id=run.id, position=2).update(body="{}")
    with pytest.raises(Tampered):
        fork(run.id, 3)
    assert Run.objects.count() == 1
    assert Run.objects.get(id=fork(run.id, 1)).position == 1


def blocked(own: pool.Connection) -> bool | None:
    sql = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return own.execute(sql).rowcount > 0 or None


def test_retention_keeps_what_a_fork_reads(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = rig({"a": turns(ask(("t", {})), ask(("t", {"n": 2})), say("done"))}, t=LARGE)
    run = desk.advance(desk.start("a")).id
    StoredBlob.objects.update(used_at="2020-01-01T00:00Z")

    def remove() -> None:
        retention.erase(run)
        with pool.open_own() as own:
            blobs.collect(own, 1000)

    removing = list[threading.Thread]()

    def begin(*_: object) -> None:
        removing.append(in_thread(remove))
        with pool.open_own() as own:
            until(lambda: blocked(own) or not removing[0].is_alive() or None, "retention to wait")

    around(monkeypatch, journal, "list_fork_points", after=begin)
    forked = fork(run, 4)
    removing[0].join()
    assert desk.advance(forked).status == "completed"


IVY = Actor(person="ivy")
SEALED = {"password": {"$secret": "0badcafe:dG9rZW4="}}


def test_two_forks_of_a_run_at_once_wait_for_no_lock_of_each_other(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seconds = target.start(), list[threading.Thread]()

    def fork_it() -> UUID:
        return fork_run(run=run, position=1, actor=Actor(person="ada"))

    def begin(*_: object) -> None:
        if not seconds:
            seconds.append(in_thread(fork_it))
            wait_until_blocked()

    around(monkeypatch, journal, "list_fork_points", before=begin)
    fork_it()
    seconds[0].join()
    assert Run.objects.count() == 3


@pytest.fixture
def home(rig: MakeBench) -> Rig:
    agents = {"a": turns(ask(("send", {}), ("read", {})), ask(("pay", {})), say("done"))}
    return rig(agents, send=FakeTool(), read=LARGE, pay=GATED)


def export(run: UUID) -> str:
    return export_run(run=run, actor=EVE)


def imported(text: str) -> UUID:
    return import_run(data=text.encode(), actor=IVY)


def test_an_export_ends_the_run_and_closes_its_gates(home: Rig, continued: None) -> None:
    run = home.advance(home.start("a"))
    (gate,) = home.open_gates(run.id)
    assert export(run.id) == export(run.id)
    assert [note[1:3] for note in home.approvals.notes] == [(EVE, "exported")] * 2
    after = Run.objects.get(id=run.id)
    assert (after.status, after.due_at, after.position) == ("exported", None, run.position + 1)
    assert after.ended_at is not None
    assert not StoredContinuation.objects.filter(run=run).exists()
    assert (Gate.objects.get(id=gate.id).state, home.approvals.closed) == ("closed", [gate.id])
    assert sound(run.id)
    assert home.advance(run.id).position == after.position
    with pytest.raises((GateNotOpen, RunEnded)):
        home.decide(gate.id, Verdict.APPROVE)
    with pytest.raises(RunEnded), transaction.atomic():
        cancel(run.id, "too late")


def test_a_run_continues_elsewhere_and_asks(home: Rig, elsewhere: Move) -> None:
    run = home.advance(home.start("a", {"n": 1})).id
    before = home.open_gates(run)[0].id
    pause(run, "moving")
    assert home.advance(run).status == "paused"
    assert sound(run)
    text = export(run)
    theirs = {mac for *_, mac in read_stored_entries(JournalEntry.objects.filter(run_id=run))}
    elsewhere(run)
    assert imported(text) == run
    ours = JournalEntry.objects.filter(run_id=run).order_by("position")
    assert not theirs & {mac for *_, mac in read_stored_entries(ours)}
    *entries, last = bodies(ours)
    assert tuple(entries) == export_file.decode(text).entries
    assert all("events" in json.loads(entry) for entry in entries)  # in full, for its reader
    (event,) = json.loads(decode_stored_text(last))["events"]
    assert (event["type"], event["by"]) == ("Imported", "ivy")
    assert event["manifest"] == export_file.decode(text).manifest
    row = Run.objects.get(id=run)
    assert (row.requester, row.status, json.loads(row.input)) == ("ivy", "queued", {"n": 1})
    assert sound(run)
    assert home.advance(run).status == "suspended"
    (gate,) = home.open_gates(run)
    assert gate.id != before
    assert home.approvals.requests[-1].requester == "ivy"
    home.decide(gate.id, Verdict.APPROVE)
    ended = home.advance(run)
    assert (ended.status, ended.output) == ("completed", '"done"')
    assert sorted(call.tool for call in home.effects.calls) == ["pay", "read", "send"]
    results = home.effects.models[-1].messages[2]["results"]
    assert results[1]["content"] == "x" * 70_000
    assert sound(run)


def test_only_a_run_that_waits_and_has_nothing_to_take_up_leaves(
    home: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued = home.start("a")
    with pytest.raises(NotAtRest):
        export(queued)
    run = home.advance(queued).id
    home.decide(home.open_gates(run)[0].id, Verdict.APPROVE)
    with pytest.raises(NotAtRest):
        export(run)
    assert Run.objects.get(id=run).status == "suspended"
    assert home.advance(run).status == "completed"
    with pytest.raises(RunEnded):
        export(run)
    other = home.advance(home.start("a")).id
    Run.objects.filter(id=other).update(owner=other)
    with pytest.raises(NotAtRest):
        export(other)
    Run.objects.filter(id=other).update(owner=None)
    monkeypatch.setattr(export_file, "MAX_BYTES", 100)
    with pytest.raises(TooLarge):
        export(other)
    assert Run.objects.get(id=other).status == "suspended", "it is too large to be imported"


def test_an_import_needs_keys_of_secrets(rig: MakeBench, elsewhere: Move) -> None:
    home = rig({"a": turns(ask(("pay", SEALED)), say("done"))}, pay=GATED)
    run = home.advance(home.start("a")).id
    text = export(run)
    assert export_file.check(export_file.decode(text))[0].secrets == ("0badcafe",)
    elsewhere(run)
    with pytest.raises(NotImportable, match="secrets sealed with key '0badcafe'"):
        imported(text)
    assert not Run.objects.exists()
    ring = Path(settings.KEYS_DIR) / "secrets.keys"
    ring.write_text(f"{ring.read_text()}0badcafe:{'00' * 32}\n")
    assert imported(text) == run


def test_an_import_is_checked_against_its_signature(
    home: Rig, elsewhere: Move, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = home.advance(home.start("a")).id
    text = export(run)
    elsewhere(run)
    sender = Sender(tmp_path)
    monkeypatch.setattr(settings, "IMPORT_KEYS", (sender.file,))
    wrong = sender.send(
        text, run=run, manifest=lambda document: document.update(entries="sha256:0")
    )
    signed = export_file.check(export_file.decode(text))
    with monkeypatch.context() as blind:
        blind.setattr(export_file, "check", lambda package: signed)
        imported(wrong)
    found = verification.verify(run).findings
    assert [finding.subject for finding in found] == ["origin"]
