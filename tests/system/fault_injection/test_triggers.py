"""kill -9 of a sweeper between the choice of an event and its commit, and just after: each event starts one run."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from runtime.control.external_events import deliver
from runtime.control.verification.verification import verify
from runtime.models import Run, TriggerEvent
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.triggers.events import changes, firing
from tests.support import commands
from tests.support.engine import ADA
from tests.support.seeds import Cast, published
from tests.system.fault_injection.harness import points

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("point", sorted(points.TRIGGERS))
def test_a_killed_sweeper_loses_and_doubles_no_event(
    point: str, by_hand: None, cast: Cast, postgres_url: str, tmp_path: Path
) -> None:
    published(input_schema={})
    said = {"name": "Hires", "agent": "hr_onboarding", "event": "hired", "mapping": "{{data}}"}
    made = changes.create(sent=said, actor=ADA)
    for n in range(3):
        deliver(id=f"e{n}", name="hired", data={"n": n}, actor=Actor(person="admin"))
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
    runs = Run.objects.order_by("id").values_list("id", flat=True)
    events = TriggerEvent.objects.filter(trigger=made, state="started").order_by("event")
    assert list(events.values_list("run", flat=True)) == list(runs)
    assert len(runs) == 3
    assert all(verify(run).is_consistent for run in runs)
