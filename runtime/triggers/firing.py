"""Starts the runs of triggers that are due. Any number of sweepers may do it at once.

One transaction locks a trigger, decides what starts, starts the runs, and writes that to the rows of its times or
events. A sweeper that dies before the commit leaves all of that to the next one; after it, the rows say what became of
them. So each time and event is handled once. The time is that of Postgres.
"""

import logging
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from runtime.control.user_actions import open_transaction
from runtime.errors import Tampered
from runtime.ports.access import Actor
from runtime.store import failpoints, pool
from runtime.store.pool import Connection
from runtime.store.tables import trigger_rows
from runtime.store.tables.trigger_rows import TriggerKind, TriggerRow
from runtime.triggers import events, times
from runtime.triggers.trigger import SignedTrigger, read_signed

log = logging.getLogger(__name__)

AFTER_ERROR = timedelta(seconds=60)


class Starter(Protocol):
    """What a kind of triggers does in its own way. Both modules below are one."""

    FAILPOINT: str

    def check(self, sent: Mapping[str, object], actor: Actor, now: datetime) -> Any:
        """Return the definition that a person sent. Raise Forbidden, UnknownAgent, or InvalidInput."""

    def handle(self, connection: Connection, trigger: SignedTrigger[Any], now: datetime) -> bool:
        """Start the due runs of a locked trigger. Return whether there is more. Raises KeyMissing."""

    def catch_up(self, connection: Connection, trigger: SignedTrigger[Any], now: datetime) -> None:
        """Handle what a change of a locked trigger must not change any more."""

    def apply_act(
        self,
        connection: Connection,
        before: SignedTrigger[Any] | None,
        after: SignedTrigger[Any],
        now: datetime,
    ) -> None:
        """Write when the sweeper looks at a trigger after an act, and its state. A new one has no `before`."""


STARTERS: Mapping[TriggerKind, Starter] = {TriggerKind.SCHEDULE: times, TriggerKind.EVENT: events}


def fire_due(kind: TriggerKind, connection: Connection, stop: threading.Event) -> None:
    """Handle each trigger that is due, one transaction for each, and again while it has more."""
    if not trigger_rows.has_due_trigger(connection, kind, pool.read_clock(connection)):
        return
    passed: list[UUID] = []
    while not stop.is_set() and _fire_next(kind, passed):
        pass


fire_schedules = partial(fire_due, TriggerKind.SCHEDULE)
fire_events = partial(fire_due, TriggerKind.EVENT)


def handle(connection: Connection, row: TriggerRow, now: datetime) -> bool:
    """Start the due runs of a locked trigger, or write why it starts nothing. Return whether there is more."""
    try:
        trigger = read_signed(connection, row)
    except Tampered as exc:
        if row.problem != str(exc):  # else it is logged
            log.critical("Trigger %s: starts nothing: %s", row.id, exc)
        _postpone(connection, row, now, problem=str(exc))
        return False
    starter = STARTERS[row.kind]
    has_more = starter.handle(connection, trigger, now)
    failpoints.hit("before", starter.FAILPOINT, 0)
    return has_more


def _fire_next(kind: TriggerKind, passed: list[UUID]) -> bool:
    """Handle a trigger that this round has not passed. Return False if there is none."""
    failpoint = STARTERS[kind].FAILPOINT
    with open_transaction() as connection:
        now = pool.read_clock(connection)
        row = trigger_rows.lock_due(connection, kind, now, passed)
        if row is None:
            return False
        try:
            with open_transaction():
                has_more = handle(connection, row, now)
        except Exception as exc:
            if pool.is_passing(exc):
                raise
            log.critical("Trigger %s: not handled, again in 60 s: %s", row.id, exc, exc_info=exc)
            _postpone(connection, row, now)
            has_more = False
        if not has_more:
            passed.append(row.id)
        failpoints.hit("written", failpoint, 0)
    failpoints.hit("committed", failpoint, 0)
    return True


def _postpone(connection: Connection, row: TriggerRow, now: datetime, **columns: str) -> None:
    again = now + AFTER_ERROR
    trigger_rows.write(connection, row.id, due_at=again, not_before=again, **columns)
