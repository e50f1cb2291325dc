"""A key that is not there is no forgery: the run is left as it is, and goes on when the key is back."""

import logging
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Request
from runtime.keyring import files, purposes
from runtime.models import Continuation, JournalEntry, Run, Signal
from tests.support.office import Target


@pytest.fixture
def keys(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """A copy of the keys that a test may lose."""
    folder = tmp_path / "keys"
    shutil.copytree(settings.KEYS_DIR, folder)
    settings.KEYS_DIR = folder
    files._ring.cache_clear()
    yield folder
    files._ring.cache_clear()


@pytest.mark.parametrize("purpose", [purposes.CONTINUATION, purposes.JOURNAL, purposes.DECISIONS])
def test_a_run_waits_untouched_for_a_key_that_is_missing_and_rotated_keys_verify(
    target: Target, keys: Path, continued: None, purpose: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = target.decided()
    before = _stored(run)
    ring = files._path(purpose)
    line = ring.read_text()
    files.rotate(purpose)
    ring.write_text(ring.read_text().replace(line, ""))
    files._ring.cache_clear()

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
        Continuation.objects.values().get(run=run),
        *JournalEntry.objects.filter(run_id=run).order_by("position").values(),
        *Request.objects.filter(run=run).values(),
        *Signal.objects.filter(run=run).values(),
    ]
