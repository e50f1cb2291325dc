"""Triggers of Ada's on real Postgres, events for them, and the sweeper, under a clock that the test sets."""

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from runtime.control.external_events import deliver
from runtime.models import Occurrence, Run
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, firing, listing
from tests.support.engine import ADA
from tests.support.seeds import Cast, object_of, published

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOOK = Actor(person="admin")
SAID: dict[str, Any] = {
    "name": "Hires",
    "agent": "hr_onboarding",
    "event": "hired",
    "filter": "data.country == 'DE'",
    "mapping": {"full_name": "{{data.first}} {{data.last}}", "level": "{{ data.level }}"},
    "key": "data.team",
}
DATA: dict[str, Any] = {"first": "New", "last": "Hire", "level": 2, "country": "DE", "team": "a"}


@dataclass
class Desk:
    """The clock of Postgres, as triggers see it, and what people and programs do by it."""

    at: datetime = NOON
    sent: int = field(default=0)

    def make(self, actor: Actor = ADA, **said: Any) -> UUID:
        return changes.create(TriggerKind.EVENT, sent={**SAID, **said}, actor=actor)

    def send(self, id: str = "", actor: Actor = HOOK, **data: Any) -> int:
        """Send an event; return how many triggers were offered it."""
        self.sent += 1
        event = {"id": id or f"e{self.sent}", "name": "hired", "data": {**DATA, **data}}
        return deliver(**event, actor=actor).triggers

    def sweep(self, seconds: float = 0) -> None:
        """Handle each trigger with something to do, this much later."""
        self.at += timedelta(seconds=seconds)
        with pool.open_own() as own:
            firing.fire_events(own, threading.Event())

    def end(self, status: str = "completed", **which: Any) -> None:
        """End runs of triggers, or those of some events."""
        runs = Occurrence.objects.filter(run__isnull=False, **which).values("run")
        Run.objects.filter(id__in=runs, ended_at=None).update(
            status=status, ended_at=self.at, due_at=None
        )


@pytest.fixture
def desk(by_hand: None, cast: Cast, monkeypatch: pytest.MonkeyPatch) -> Desk:
    kinds: dict[str, Any] = {"full_name": {"type": "string"}, "level": {"type": "integer"}}
    published(input_schema={**object_of(**kinds), "additionalProperties": False})
    made = Desk()
    monkeypatch.setattr(pool, "read_clock", lambda connection: made.at)
    return made


def told(trigger: UUID) -> list[tuple[str, str, str]]:
    """The events of a trigger, the oldest first: id, state and reason."""
    shown = listing.read_one(TriggerKind.EVENT, trigger, Actor(person="admin"))
    return [(str(one.id), one.state, one.reason) for one in reversed(shown.history)]
