"""kill -9 of the sweeper that reads a watched folder: each file starts one run."""

import json
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db.models import F
from pytest_django import Settings

from runtime.models import Run, WatchedFile
from runtime.store import pool
from runtime.triggers.events import changes, firing
from runtime.triggers.sources import folders
from tests.support.engine import ADA
from tests.support.seeds import published
from tests.system.fault_injection.harness import points
from tests.system.fault_injection.harness.loop import die_at

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("by_hand", "cast", "forks")]

SAID = {"name": "Files", "agent": "hr_onboarding", "event": "filed", "mapping": "{{data.json}}"}


def read() -> None:
    """Read each source and start runs, as a sweeper does."""
    with pool.own() as own:
        folders.look(own, threading.Event())
        firing.fire_due(own, threading.Event())


@pytest.mark.parametrize("point", sorted(points.SOURCES))
def test_a_killed_reader_loses_and_doubles_nothing(
    point: str, tmp_path: Path, settings: Settings
) -> None:
    published(input_schema={})
    inbox = tmp_path / "in"
    inbox.mkdir()
    settings.ABEYANCE_WATCHED_FOLDERS = (inbox,)
    changes.create(sent={**SAID, "folder": str(inbox)}, actor=ADA)
    for n in range(3):
        (inbox / f"{n}.json").write_text(json.dumps({"n": n}))
    read()
    WatchedFile.objects.update(seen_at=F("seen_at") - timedelta(minutes=1))
    die_at(point, tmp_path, call_command, "sweep", ABEYANCE_WATCHED_FOLDERS=(inbox,))
    assert WatchedFile.objects.filter(done=True).count() == 3 * point.startswith("committed")
    read()
    assert sorted(json.loads(run.input)["n"] for run in Run.objects.all()) == [0, 1, 2]
