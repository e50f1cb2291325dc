"""Compressed entries are stored as bytes with a truncated MAC; entries of the release before are read as they are."""

from itertools import product
from uuid import UUID

import pytest

from runtime.core.limits import KEPT_INLINE
from runtime.errors import KeyMissing, Tampered
from runtime.keyring import files, macs, purposes
from runtime.models import JournalEntry, Run
from runtime.ports.effects import ToolResult
from runtime.store import pool
from runtime.store.tables import journal
from tests.support.engine import MakeBench, Rig, bodies
from tests.support.fake_ports import FakeTool, ask, say, turns

GATED = FakeTool(gated=True)


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=GATED)


def entries(run: UUID) -> list[JournalEntry]:
    return list(JournalEntry.objects.filter(run_id=run).order_by("position"))


def test_a_short_entry_is_packed_and_every_byte_counts(desk: Rig) -> None:
    run = desk.advance(desk.start("a"))
    rows = entries(run.id)
    assert {(row.body, row.mac) for row in rows} == {("", "")}
    assert bytes(rows[-1].packed or b"")[:16].hex() == run.head
    assert all(text.startswith('{"schema":8,"z":"') for text in bodies(JournalEntry.objects.all()))

    def verifies(**values: object) -> bool:
        JournalEntry.objects.filter(run_id=run.id, position=2).update(**values)
        with pool.own() as own:
            try:
                journal.verify(own, run.id, position=run.position, head=run.head)
            except Tampered:
                return False
        return True

    packed = bytes(rows[1].packed or b"")
    for at, byte in enumerate(packed):
        assert not verifies(packed=packed[:at] + bytes([byte ^ 1]) + packed[at + 1 :]), at
    assert verifies(packed=packed)
    for column, text in product(("body", "mac"), ("x", "é")):
        assert not verifies(**{"body": "", "mac": "", column: text}), (column, text)


def test_a_long_entry_is_text_with_a_whole_mac(rig: MakeBench) -> None:
    long = FakeTool(body=lambda _: ToolResult(value="x" * (KEPT_INLINE // 4)))
    desk = rig({"a": turns(ask(("long", {})), ask(("t", {})), say("done"))}, long=long, t=GATED)
    run = desk.advance(desk.start("a")).id
    (row,) = [row for row in entries(run) if row.packed is None]
    assert len(row.mac) == 64
    assert row.key_id.removeprefix(":") in files.ids(purposes.JOURNAL)
    for one in entries(run):
        with pytest.raises(KeyMissing):  # the release before misses it, and leaves the run alone
            files.key_of(purposes.JOURNAL, one.key_id)
    assert desk.answer(run).status == "completed"


def test_a_run_of_the_release_before_continues(desk: Rig) -> None:
    """Its entries are text, each with a whole MAC."""
    run = desk.advance(desk.start("a")).id
    head = ""
    rows = JournalEntry.objects.filter(run_id=run).order_by("position")
    for position, text in enumerate(bodies(rows), start=1):
        seal = macs.seal(purposes.JOURNAL, str(run), str(position), head, text)
        head = seal.mac
        rows.filter(position=position).update(body=text, mac=head, key_id=seal.key_id, packed=None)
    Run.objects.filter(id=run).update(head=head)
    done = desk.answer(run)
    assert (done.status, done.reason) == ("completed", None)
    assert {row.packed is None for row in entries(run)} == {True, False}


def test_a_truncated_mac_has_half_of_its_digits() -> None:
    files.ensure(purposes.JOURNAL)
    whole = macs.seal(purposes.JOURNAL, "run", "1")
    assert macs.seal(purposes.JOURNAL, "run", "1", short=True).mac == whole.mac[:32]
    verifies = macs.verifier(purposes.JOURNAL, "run")
    accepted = [n for n in range(65) if verifies(whole.mac[:n], whole.key_id, "1")]
    assert accepted == [32, 64]
