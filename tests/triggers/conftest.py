"""Schedules of Ada's on real Postgres, under a clock that the test sets."""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from runtime.models import Occurrence, Run
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, firing, listing
from tests.support.engine import ADA
from tests.support.seeds import Cast, object_of, published

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SAID: dict[str, Any] = {
    "name": "Hourly",
    "agent": "hr_onboarding",
    "input": {"day": "{{date}}", "note": "for {{time}}"},
    "cron": "0 * * * *",
    "zone": "Europe/Berlin",
}


@dataclass
class Clock:
    """The clock of Postgres, as schedules see it, and what the sweeper does by it."""

    at: datetime = NOON - timedelta(minutes=30)

    def make(self, actor: Actor = ADA, **said: Any) -> UUID:
        return changes.create(TriggerKind.SCHEDULE, sent={**SAID, **said}, actor=actor)

    def sweep(self, at: datetime | None = None) -> None:
        """Handle each schedule that is due at this time."""
        self.at = at or self.at
        with pool.open_own() as own:
            firing.fire_schedules(own, threading.Event())

    def end(self, schedule: UUID, status: str = "completed") -> None:
        """End the runs of a schedule."""
        runs = Occurrence.objects.filter(trigger=schedule, run__isnull=False).values("run")
        Run.objects.filter(id__in=runs, ended_at=None).update(
            status=status, ended_at=self.at, due_at=None
        )


@pytest.fixture
def clock(by_hand: None, cast: Cast, monkeypatch: pytest.MonkeyPatch) -> Clock:
    published(input_schema=object_of(day={"type": "string", "maxLength": 10}))
    made = Clock()
    monkeypatch.setattr(pool, "read_clock", lambda connection: made.at)
    return made


def told(schedule: UUID) -> list[tuple[str, str, str]]:
    """The times of a schedule, the oldest first: the hour from noon on, its state, and the reason."""
    shown = listing.read_one(TriggerKind.SCHEDULE, schedule, Actor(person="admin"))
    return [
        (f"{(one.at - NOON) / HOUR:g}", one.state, one.reason) for one in reversed(shown.history)
    ]
