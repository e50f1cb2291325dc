"""kill -9 of a sweeper that archives a run: the run is in Postgres or in its file, and no second file stays."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from runtime.models import ArchivedRun, DroppedObject, Run
from runtime.ports import wiring
from runtime.store.object_stores.stores import open_store
from runtime.upkeep.retention_rules import parse
from tests.support.office import Target
from tests.system.fault_injection.harness import points
from tests.system.fault_injection.harness.loop import die_at
from tests.upkeep.test_archiving import enforced, stored_of
from tests.upkeep.test_retention import BIG, ended

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("forks", "object_store")]


def archive(folder: str) -> None:
    """Archive due runs into this folder."""
    wiring.plug(objects=open_store(folder))
    call_command("archive_runs")


@pytest.mark.parametrize("point", sorted(points.ARCHIVE))
def test_a_killed_sweeper_loses_nothing_and_leaves_no_file(
    point: str, target: Target, settings: Settings, tmp_path: Path
) -> None:
    target.effects.tools["create_account"] = BIG
    settings.SIGNOFF_ARCHIVE = parse("30")
    run, folder, is_done = ended(target), tmp_path / "objects", point.startswith("archived")
    before = stored_of(run)
    die_at(point, tmp_path, archive, str(folder), SIGNOFF_ARCHIVE=parse("30"))
    assert (Run.objects.get(id=run).archived_at is not None) == is_done
    assert stored_of(run) == before
    assert enforced() == 0  # the dead one could still be at work
    ArchivedRun.objects.update(at=timezone.now() - timedelta(minutes=11))
    assert enforced() == (not is_done)
    assert stored_of(run) == before
    files = [str(one.relative_to(folder)) for one in (folder / "runs").rglob("*") if one.is_file()]
    assert files == [ArchivedRun.objects.get().place]
    assert not DroppedObject.objects.exists()
