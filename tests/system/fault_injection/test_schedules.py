"""kill -9 of a sweeper between the choice of a time and its commit, and just after: each time starts one run."""

import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from runtime.control.verification.verification import verify
from runtime.models import Run, Schedule, ScheduleTime
from runtime.store import pool
from runtime.triggers import changes, firing
from tests.support import commands
from tests.support.engine import ADA
from tests.support.seeds import Cast, published
from tests.system.fault_injection.harness import points

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("point", sorted(points.SCHEDULES))
def test_a_killed_sweeper_loses_and_doubles_no_time(
    point: str, by_hand: None, cast: Cast, postgres_url: str, tmp_path: Path
) -> None:
    published(input_schema={})
    first = timezone.now().replace(microsecond=0) - timedelta(hours=2.5)
    said = {"name": "Hourly", "agent": "hr_onboarding", "every": 3600, "overlap": "allow"}
    made = changes.create(sent={**said, "missed": "all", "starts_at": first.isoformat()}, actor=ADA)
    Schedule.objects.update(
        next_at=first, due_at=first
    )  # as after an outage of two hours and a half
    server, name = postgres_url.rpartition("/")[0], connection.settings_dict["NAME"]
    died = tmp_path / "died"
    env = {
        **os.environ,
        "DATABASE_URL": f"{server}/{name}",
        "REDIS_URL": settings.REDIS_URL,
        "KEYS_DIR": str(settings.KEYS_DIR),
        "ABEYANCE_KILL_POINT": point,
        "ABEYANCE_KILL_ONCE": str(died),
    }
    log = tmp_path / "sweeper.log"
    victim = commands.start([sys.executable, "manage.py", "sweep"], log, env=env)
    assert victim.wait(60) == -signal.SIGKILL, log.read_text()
    assert died.exists()
    assert Run.objects.count() == (3 if point.startswith("committed") else 0)
    with pool.own() as own:
        firing.fire_due(own, threading.Event())
    times = ScheduleTime.objects.filter(schedule=made, state="started")
    assert [row.at for row in times.order_by("at")] == [
        first + timedelta(hours=n) for n in range(3)
    ]
    runs = Run.objects.values_list("id", flat=True)
    assert set(runs) == set(times.values_list("run", flat=True))
    assert len(runs) == 3
    assert all(verify(run).is_consistent for run in runs)
