"""Looks at each source of one kind. Any number of sweepers may do it at once.

One transaction locks a source, reads it and writes the events of its trigger. A sweeper that dies before the commit
leaves all of that to the next one. The sources loop never waits for a source that another sweeper looks at.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from runtime.control.transaction import atomic
from runtime.errors import KeyMissing, Tampered
from runtime.store import failpoints, pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import sources, triggers
from runtime.store.tables.triggers.sources import Kind
from runtime.triggers.events import trigger
from runtime.triggers.events.definition import Definition
from runtime.triggers.schedule import Status

log = logging.getLogger(__name__)

UNKNOWN = "it cannot be read; the log of the sweeper says why"


class Unreadable(Exception):
    """A source cannot be read now; the message says why. `again` is the time until the next look."""

    def __init__(self, why: str, *, again: timedelta | None = None) -> None:
        super().__init__(why)
        self.again = again


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What a look found: whether there is `more` to read at once, and what to do `after` the commit.

    `after` returns whether it could be done. `problem` says why the look does not read all of it; `again` is then the
    time until the next one.
    """

    more: bool = False
    problem: str = ""
    again: timedelta | None = None
    after: Callable[[], bool] = lambda: True


Look = Callable[[Connection, UUID, Definition], Looked]


def each(kind: Kind, look: Look, stop: threading.Event) -> None:
    """Look at each source of this kind once, and in turns at those that have more."""
    passed: list[UUID] = []
    again: list[UUID] = []  # that have more, and had their turn
    while not stop.is_set():
        with atomic() as connection:
            found = sources.lock_next(connection, kind, passed + again, pool.now(connection))
            if found is None:
                if not again:
                    return
                again.clear()
                continue
            looked = _look(connection, kind, found, look)
            now = pool.now(connection)
            later = None if looked.again is None else now + looked.again
            sources.note(connection, found, looked.problem, now, later)
            failpoints.hit("written", kind.failpoint, 0)
        failpoints.hit("committed", kind.failpoint, 0)
        (again if looked.after() and looked.more else passed).append(found)


def _look(connection: Connection, kind: Kind, id: UUID, look: Look) -> Looked:
    """Look at a source. An error is its problem, unless it is one of Postgres that passes."""
    try:
        with atomic():
            one = _defined(connection, id)
            return Looked() if one is None else look(connection, id, one)
    except Unreadable as exc:
        return Looked(problem=str(exc), again=exc.again)
    except (Tampered, KeyMissing) as exc:
        return Looked(problem=str(exc))
    except Exception as exc:
        if pool.is_passing(exc):
            raise
        log.critical("Trigger %s: its %s cannot be read: %s", id, kind, exc, exc_info=exc)
        return Looked(problem=UNKNOWN)


def _defined(connection: Connection, id: UUID) -> Definition | None:
    """Return what the newest act says, None unless the trigger is active. Raises Tampered, KeyMissing."""
    row = triggers.read(connection, id)
    if row is None:
        return None
    one = trigger.current(connection, row)
    return one.definition if one.status is Status.ACTIVE else None
