"""kill -9 of the sweeper that starts a run by an event, and of a receiver of webhooks: each event starts one run."""

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
from runtime.triggers.webhooks import changes as webhook_changes
from runtime.triggers.webhooks.receive import receive
from tests.support import commands
from tests.support.engine import ADA
from tests.support.seeds import Cast, published
from tests.system.fault_injection.harness import points

pytestmark = pytest.mark.faults


# A process that receives a delivery, as the web process does.
RECEIVE = """
import sys, django
django.setup()
from runtime.triggers.webhooks.receive import receive
receive(sys.argv[1], {"x-token": sys.argv[2]}, b'{"n": 1}')
"""


def killed(point: str, command: list[str], postgres_url: str, tmp_path: Path) -> None:
    """Run a process that ends itself by kill -9 at this point."""
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
    log = tmp_path / "victim.log"
    victim = commands.start(command, log, env=env)
    assert victim.wait(60) == -signal.SIGKILL, log.read_text()
    assert died.exists()


@pytest.mark.parametrize("point", sorted(points.TRIGGERS))
def test_a_killed_sweeper_loses_and_doubles_no_event(
    point: str, by_hand: None, cast: Cast, postgres_url: str, tmp_path: Path
) -> None:
    published(input_schema={})
    said = {"name": "Hires", "agent": "hr_onboarding", "event": "hired", "mapping": "{{data}}"}
    made = changes.create(sent=said, actor=ADA)
    for n in range(3):
        deliver(id=f"e{n}", name="hired", data={"n": n}, actor=Actor(person="admin"))
    killed(point, [sys.executable, "manage.py", "sweep"], postgres_url, tmp_path)
    assert Run.objects.count() == (3 if point.startswith("committed") else 0)
    with pool.own() as own:
        firing.fire_due(own, threading.Event())
    runs = Run.objects.order_by("id").values_list("id", flat=True)
    events = TriggerEvent.objects.filter(trigger=made, state="started").order_by("event")
    assert list(events.values_list("run", flat=True)) == list(runs)
    assert len(runs) == 3
    assert all(verify(run).is_consistent for run in runs)


@pytest.mark.parametrize("point", sorted(points.DELIVERIES))
def test_a_killed_receiver_loses_and_doubles_no_delivery(
    point: str, by_hand: None, cast: Cast, postgres_url: str, tmp_path: Path
) -> None:
    """The sender has no answer, so it sends the delivery again."""
    published(input_schema={})
    said = {"name": "Hires", "agent": "hr_onboarding", "event": "hired", "mapping": "{{data}}"}
    made = changes.create(sent=said, actor=ADA)
    hook = webhook_changes.make(id=made, scheme="header", header="x-token", actor=ADA)
    command = [sys.executable, "-c", RECEIVE, hook.address, hook.secret]
    killed(point, command, postgres_url, tmp_path)
    assert TriggerEvent.objects.count() == point.startswith("committed")
    again = receive(hook.address, {"x-token": hook.secret}, b'{"n": 1}')
    assert again.new is point.startswith("written")
    with pool.own() as own:
        firing.fire_due(own, threading.Event())
    assert Run.objects.count() == 1
