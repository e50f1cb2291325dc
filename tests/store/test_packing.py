"""Compressed entries are stored as bytes with a truncated MAC; entries of the release before are read as they are."""

from uuid import UUID

import pytest

from runtime.core.enums import Verdict
from runtime.core.limits import KEPT_INLINE
from runtime.errors import KeyMissing, Tampered
from runtime.keyring import files, macs, purposes
from runtime.models import JournalEntry, Run
from runtime.ports.effects import ToolResult
from runtime.store import pool
from runtime.store.tables import journal
from tests.bench.sides import without
from tests.support.engine import MakeBench, Rig
from tests.support.entries import bodies
from tests.support.fake_ports import FakeTool, ask, say, turns

GATED = FakeTool(gated=True)


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=GATED)


def entries(run: UUID) -> list[JournalEntry]:
    return list(JournalEntry.objects.filter(run_id=run).order_by("position"))


def packed_of(row: JournalEntry) -> bytes:
    return bytes(row.packed or b"")


def test_a_short_entry_is_packed(desk: Rig) -> None:
    run = desk.advance(desk.start("a"))
    rows = entries(run.id)
    assert {(row.body, row.mac) for row in rows} == {("", "")}
    assert packed_of(rows[-1])[:16].hex() == run.head
    assert all(text.startswith('{"schema":8,"z":"') for text in bodies(JournalEntry.objects.all()))


def test_a_long_entry_is_text_with_a_whole_mac(rig: MakeBench) -> None:
    long = FakeTool(body=lambda _: ToolResult(value="x" * (KEPT_INLINE // 4)))
    desk = rig({"a": turns(ask(("long", {})), ask(("t", {})), say("done"))}, long=long, t=GATED)
    run = desk.advance(desk.start("a"))
    (row,) = [row for row in entries(run.id) if row.packed is None]
    assert len(row.mac) == 64
    assert row.key_id.removeprefix(":") in files.ids(purposes.JOURNAL)
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
    assert desk.advance(run.id).status == "completed"


def test_every_byte_of_a_packed_entry_counts(desk: Rig) -> None:
    run = desk.advance(desk.start("a"))
    packed = packed_of(entries(run.id)[1])
    accepted = []
    for at in range(len(packed)):
        _set(run.id, packed=packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :])
        if _verifies(run):
            accepted.append(at)
    _set(run.id, packed=packed)
    assert _verifies(run)
    assert accepted == []


@pytest.mark.parametrize("text", ["x", "é"])
@pytest.mark.parametrize("column", ["body", "mac"])
def test_what_is_written_beside_a_packed_entry_counts(desk: Rig, column: str, text: str) -> None:
    run = desk.advance(desk.start("a"))
    _set(run.id, **{column: text})
    assert not _verifies(run)


def test_a_truncated_mac_has_half_of_its_digits() -> None:
    files.ensure(purposes.JOURNAL)
    whole = macs.seal(purposes.JOURNAL, "run", "1")
    assert macs.seal(purposes.JOURNAL, "run", "1", short=True).mac == whole.mac[:32]
    verifies = macs.verifier(purposes.JOURNAL, "run")
    accepted = [n for n in range(65) if verifies(whole.mac[:n], whole.key_id, "1")]
    assert accepted == [32, 64]


@pytest.mark.parametrize("length", [1, KEPT_INLINE // 4])
def test_the_release_before_misses_the_key_of_each_entry(rig: MakeBench, length: int) -> None:
    """It looks for the key before it verifies, and leaves the run alone if it misses it.

    A long reply is not packed, and its entry opens a gate whose request the release before cannot verify.
    """
    desk = rig({"a": turns(ask(("t", {"text": "x" * length})), say("done"))}, t=GATED)
    rows = entries(desk.advance(desk.start("a")).id)
    assert (rows[-1].packed is None) is (length > 1)
    for row in rows:
        with pytest.raises(KeyMissing):
            files.key_of(purposes.JOURNAL, row.key_id)


def test_a_run_of_the_release_before_continues(desk: Rig) -> None:
    run = desk.advance(desk.start("a"))
    _as_before(run)
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
    done = desk.advance(run.id)
    assert (done.status, done.reason) == ("completed", None)
    assert {row.packed is None for row in entries(run.id)} == {True, False}


@pytest.mark.parametrize("guarantee", without.GUARANTEES)
def test_the_bench_measures_runs_without_a_guarantee(desk: Rig, guarantee: str) -> None:
    with without.left_out(guarantee):
        run = desk.advance(desk.start("a"))
        desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
        done = desk.advance(run.id)
    assert (done.status, done.reason) == ("completed", None)


def _as_before(run: Run) -> None:
    """Store its entries as the release before stored them: as text, each with a whole MAC."""
    head = ""
    rows = JournalEntry.objects.filter(run_id=run.id).order_by("position")
    for position, text in enumerate(bodies(rows), start=1):
        seal = macs.seal(purposes.JOURNAL, str(run.id), str(position), head, text)
        head = seal.mac
        rows.filter(position=position).update(body=text, mac=head, key_id=seal.key_id, packed=None)
    Run.objects.filter(id=run.id).update(head=head)


def _set(run: UUID, **values: object) -> None:
    JournalEntry.objects.filter(run_id=run, position=2).update(**values)


def _verifies(run: Run) -> bool:
    with pool.own() as own:
        try:
            journal.verify(own, run.id, position=run.position, head=run.head)
        except Tampered:
            return False
    return True
