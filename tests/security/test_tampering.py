"""Stored state that was changed behind the engine's back parks its run; a key that is gone makes it wait."""

import logging
import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Approval
from runtime.errors import Tampered
from runtime.keyring import files, purposes, signatures
from runtime.models import JournalEntry, Run, Signal, StoredContinuation
from runtime.store import pool
from runtime.store.tables import continuations, journal
from tests.support.engine import body
from tests.support.office import Target

pytestmark = pytest.mark.usefixtures("continued")

CONTINUATION = "runtime_storedcontinuation"
RUN = "runtime_run"
CHANGE = "UPDATE runtime_storedcontinuation SET body = %s, mac = %s WHERE run_id = %s"


def test_every_byte_of_a_continuation_and_its_mac_counts(target: Target) -> None:
    run = target.decided()
    stored = StoredContinuation.objects.get(run=run)
    body, mac = stored.body, stored.mac
    with pool.open_own() as own:
        row, (mark, entries) = Run.objects.get(id=run), journal.read(own, run)

        def loads(body: str, mac: str = mac) -> bool:
            """Tell whether a worker would resume from this continuation; the change is rolled back."""
            with own.transaction(force_rollback=True):
                own.execute(CHANGE, (body, mac, run))
                try:
                    base = continuations.load(own, run, row.base, entries.text)
                    journal.fold_entries(base, mark, entries, position=row.position, head=row.head)
                except Tampered:
                    return False
            return True

        assert loads(body)
        assert [at for at in range(len(body)) if loads(_flipped(body, at))] == []
        assert [at for at in range(len(mac)) if loads(body, _flipped(mac, at))] == []
    assert len(body) > 1000


def test_swapped_continuations_park_both_runs(target: Target) -> None:
    one, other = target.decided(), target.decided()
    first, second = _kept(one), _kept(other)
    _put(one, second)
    _put(other, first)
    for run in (one, other):
        target.assert_parked(run, "the continuation does not verify")


@pytest.mark.parametrize("with_row", [False, True])
def test_an_older_continuation_cannot_replace_the_last_one(target: Target, with_row: bool) -> None:
    target.ask_twice()
    run = target.start()
    older, row = _kept(run), Run.objects.values("position", "head", "base").get(id=run)
    target.decide(run)
    assert target.advance(run).status == "suspended"
    assert _kept(run)["position"] > older["position"]
    _put(run, older)
    if with_row:
        Run.objects.filter(id=run).update(**row)
    target.decide(run)
    target.assert_parked(run, "the journal ends at entry" if with_row else "the last one was of")


def test_a_continuation_that_is_gone_or_beyond_the_journal_parks_the_run(target: Target) -> None:
    gone, run = target.decided(), target.decided()
    StoredContinuation.objects.filter(run=gone).delete()
    target.assert_parked(gone, "the continuation is missing")
    body = _kept(run)["body"]
    broken = re.sub(r'"position":\d+,', '"position":99,', body, count=1)
    seal = signatures.seal(purposes.CONTINUATION, str(run), broken)
    assert broken != body
    _put(run, {"body": broken, "mac": seal.mac, "key_id": seal.key_id})
    target.assert_parked(run, "the continuation: its entries lack its omitted parts (")


@pytest.mark.parametrize("place", [0, 1, -1], ids=["first", "second", "last"])
@pytest.mark.parametrize("kind", ["decided", "abandoned"])
def test_an_edited_entry_parks_the_run(target: Target, kind: str, place: int) -> None:
    run = getattr(target, kind)()
    position = _positions(run)[place]
    text = body(run_id=run, position=position)
    changed = text.replace('{"schema":', '{ "schema":')
    assert JournalEntry.objects.filter(run_id=run, position=position).update(body=changed) == 1
    target.assert_parked(run, f"journal entry {position} does not verify")


@pytest.mark.parametrize("kind", ["decided", "abandoned"])
def test_a_dropped_entry_parks_the_run(target: Target, kind: str) -> None:
    for where in (0, 1, -1):
        run = getattr(target, kind)()
        position = _positions(run)[where]
        JournalEntry.objects.filter(run_id=run, position=position).delete()
        end = "lack its omitted parts" if kind == "decided" else "the journal ends"
        what = end if where == -1 else f"journal entry {position} is missing"
        target.assert_parked(run, what)


@pytest.mark.parametrize("kind", ["decided", "abandoned"])
def test_an_inserted_entry_parks_the_run(target: Target, kind: str) -> None:
    run = getattr(target, kind)()
    last = _positions(run)[-1]
    _copy(run, last, run, last + 1)
    target.assert_parked(run, f"journal entry {last + 1} does not verify")


def test_an_entry_of_another_run_parks_the_run(target: Target) -> None:
    one, other = target.abandoned(), target.abandoned()
    last = _positions(one)[-1]
    JournalEntry.objects.filter(run_id=one, position=last).delete()
    _copy(other, last, one, last)
    target.assert_parked(one, f"journal entry {last} does not verify")


@pytest.mark.parametrize("kind", ["decided", "abandoned"])
def test_swapped_entries_park_the_run(target: Target, kind: str) -> None:
    run = getattr(target, kind)()
    *_, one, other = _positions(run)
    for position, place in ((one, -1), (other, one), (-1, other)):
        JournalEntry.objects.filter(run_id=run, position=position).update(position=place)
    target.assert_parked(run, f"journal entry {one} does not verify")


@pytest.mark.parametrize(
    "change", ["position = position - 1", "position = position + 1", "head = repeat('0', 64)"]
)
def test_a_changed_end_parks_the_run(target: Target, change: str) -> None:
    run = target.decided()
    target.touch(RUN, run, change)
    target.assert_parked(run, "")


def test_parking_is_for_the_run_alone(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    parked, *others = target.decided(), target.decided(), target.abandoned()
    target.touch(CONTINUATION, parked, "mac = repeat('0', 64)")
    target.assert_parked(parked, "the continuation does not verify")
    alarms = [one for one in caplog.records if one.levelno == logging.CRITICAL]
    assert [str(parked) in one.getMessage() for one in alarms] == [True]
    for run in others:
        assert target.advance(run).status == "completed"
        assert target.started(run) == 1


# A key that is not there is no forgery


@pytest.fixture
def keys(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """A copy of the keys that a test may lose."""
    folder = tmp_path / "keys"
    shutil.copytree(settings.KEYS_DIR, folder)
    settings.KEYS_DIR = folder
    files._read_ring.cache_clear()
    yield folder
    files._read_ring.cache_clear()


@pytest.mark.parametrize("purpose", [purposes.CONTINUATION, purposes.JOURNAL, purposes.DECISIONS])
def test_a_run_waits_untouched_for_a_key_that_is_missing_and_rotated_keys_verify(
    target: Target, keys: Path, purpose: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = target.decided()
    before = _stored(run)
    ring = files._locate_ring(purpose)
    line = ring.read_text()
    files.rotate(purpose)
    ring.write_text(ring.read_text().replace(line, ""))
    files._read_ring.cache_clear()

    asked_at = timezone.now()
    left = target.advance(run)
    assert _stored(run) == before
    assert left.status == "suspended"
    assert left.owner is None
    assert left.due_at is not None
    assert left.due_at > asked_at + timedelta(seconds=20)
    assert target.started(run) == 0
    alarms = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert [str(run) in one and f"for {purpose} is not in the ring" in one for one in alarms] == [
        True
    ]

    ring.write_text(ring.read_text() + line)  # of before the rotation
    assert target.advance(run).status == "suspended"  # not before its time
    Run.objects.filter(id=run).update(due_at=timezone.now())
    assert target.advance(run).status == "completed"
    assert target.started(run) == 1


def _stored(run: UUID) -> list[object]:
    """Everything that is stored of a run but for what says who looked at it and when."""
    row = Run.objects.values("status", "position", "head", "base", "output", "reason").get(id=run)
    return [
        row,
        StoredContinuation.objects.values().get(run=run),
        *JournalEntry.objects.filter(run_id=run).order_by("position").values(),
        *Approval.objects.filter(run=run).values(),
        *Signal.objects.filter(run=run).values(),
    ]


def _flipped(text: str, at: int) -> str:
    return text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]


def _kept(run: UUID) -> dict[str, Any]:
    return dict(StoredContinuation.objects.values("position", "body", "mac", "key_id").get(run=run))


def _put(run: UUID, values: dict[str, Any]) -> None:
    StoredContinuation.objects.filter(run=run).update(**values)


def _positions(run: UUID) -> list[int]:
    found = JournalEntry.objects.filter(run_id=run).order_by("position")
    return list(found.values_list("position", flat=True))


def _copy(source: UUID, position: int, run: UUID, place: int) -> None:
    with pool.open_own() as own:
        own.execute(
            """
            INSERT INTO runtime_journalentry (run_id, position, body, mac, key_id, commit_id, packed)
            SELECT %s, %s, body, mac, key_id, commit_id, packed FROM runtime_journalentry
            WHERE run_id = %s AND position = %s
            """,
            (run, place, source, position),
        )
        own.execute(
            "UPDATE runtime_run SET position = greatest(position, %s) WHERE id = %s", (place, run)
        )
