"""kill -9 of the sweeper that starts runs by a schedule or an event, and of a receiver of webhooks.

Each time, event and delivery starts one run.
"""

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import timezone

from runtime.control.external_events import deliver
from runtime.control.verification import verify
from runtime.models import Occurrence, Run, Trigger
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, firing, webhooks
from runtime.triggers.webhooks import REPEATED, receive
from tests.support.engine import ADA
from tests.support.seeds import Cast, published
from tests.system.fault_injection.harness import points
from tests.system.fault_injection.harness.loop import die_at

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("by_hand", "forks")]

SAID = {"name": "Hires", "agent": "hr_onboarding", "event": "hired", "mapping": "{{data}}"}


@pytest.fixture(autouse=True)
def _agent(cast: Cast) -> None:
    published(input_schema={})


def fire(kind: TriggerKind) -> None:
    """Start the due runs, as the next sweeper does."""
    with pool.open_own() as own:
        firing.fire_due(kind, own, threading.Event())
    assert all(verify(run).is_consistent for run in Run.objects.values_list("id", flat=True))


@pytest.mark.parametrize("point", sorted(points.SCHEDULES))
def test_a_killed_sweeper_loses_and_doubles_no_time(point: str, tmp_path: Path) -> None:
    first = timezone.now().replace(microsecond=0) - timedelta(hours=2.5)
    said = {"name": "Hourly", "agent": "hr_onboarding", "every": 3600, "overlap": "allow"}
    said |= {"missed": "all", "starts_at": first.isoformat()}
    made = changes.create(TriggerKind.SCHEDULE, sent=said, actor=ADA)
    # As after an outage of two hours and a half
    Trigger.objects.update(next_at=first, due_at=first)
    die_at(point, tmp_path, call_command, "sweep")
    assert Run.objects.count() == (3 if point.startswith("committed") else 0)
    fire(TriggerKind.SCHEDULE)
    times = Occurrence.objects.filter(trigger=made, state="started").order_by("at")
    assert [row.at for row in times] == [first + timedelta(hours=n) for n in range(3)]
    assert set(Run.objects.values_list("id", flat=True)) == {row.run for row in times}
    assert Run.objects.count() == 3


@pytest.mark.parametrize("point", sorted(points.TRIGGERS))
def test_a_killed_sweeper_loses_and_doubles_no_event(point: str, tmp_path: Path) -> None:
    made = changes.create(TriggerKind.EVENT, sent=SAID, actor=ADA)
    for n in range(3):
        deliver(id=f"e{n}", name="hired", data={"n": n}, actor=Actor(person="admin"))
    die_at(point, tmp_path, call_command, "sweep")
    assert Run.objects.count() == (3 if point.startswith("committed") else 0)
    fire(TriggerKind.EVENT)
    runs = Run.objects.order_by("id").values_list("id", flat=True)
    events = Occurrence.objects.filter(trigger=made, state="started").order_by("number")
    assert list(events.values_list("run", flat=True)) == list(runs)
    assert len(runs) == 3


@pytest.mark.parametrize("point", sorted(points.DELIVERIES))
def test_a_killed_receiver_loses_and_doubles_no_delivery(point: str, tmp_path: Path) -> None:
    """The sender has no answer, so it sends the delivery again."""
    made = changes.create(TriggerKind.EVENT, sent=SAID, actor=ADA)
    hook = webhooks.make(id=made, scheme="header", header="x-token", actor=ADA)
    delivery = (hook.address, {"x-token": hook.secret}, b'{"n": 1}')
    die_at(point, tmp_path, receive, *delivery)
    assert Occurrence.objects.count() == point.startswith("committed")
    assert receive(*delivery).skipped == ("" if point.startswith("written") else REPEATED)
    fire(TriggerKind.EVENT)
    assert Run.objects.count() == 1
