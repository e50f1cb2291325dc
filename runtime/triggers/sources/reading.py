"""Reads the sources that triggers name. Any number of sweepers may do it at once.

One transaction locks a source, reads it and writes the events of its trigger, each once by its key. A sweeper that dies
before the commit leaves all of that to the next one. The loop of a source never waits for one that another sweeper
reads.
"""

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from runtime.control.user_actions import open_transaction
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import hash_value, is_text, read_json
from runtime.errors import InvalidInput, KeyMissing, Tampered
from runtime.store import failpoints, pool
from runtime.store.tables import occurrences, received_events, trigger_rows, trigger_sources
from runtime.store.tables.occurrences import OccurrenceState
from runtime.triggers.event_definition import EventDefinition
from runtime.triggers.trigger import TriggerStatus, read_signed

log = logging.getLogger(__name__)

# Events of a trigger that have not started. The rest stays at its source until there are fewer, so that none is skipped
# because too many wait.
MAX_OPEN = 1_000
MAX_CONTENT = 64 * 1024  # bytes of a text that is in the data of its event
UNKNOWN = "it cannot be read; the log of the sweeper says why"


class NotAnEvent(Exception):
    """A file or an entry that is not an event; the message says why."""


class SourceUnreadable(Exception):
    """A source cannot be read now; the message says why. `again` is the time until the next look."""

    def __init__(self, reason: str, *, again: timedelta | None = None) -> None:
        super().__init__(reason)
        self.again = again


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The result of a look: whether it `has_more` to read at once, and what to do `after` the commit.

    `after` returns whether it could be done. `problem` says why the look does not read all of it; `again` is then the
    time until the next one.
    """

    has_more: bool = False
    problem: str = ""
    again: timedelta | None = None
    after: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSource:
    """A kind of locations that triggers read. `kind` is the field of a trigger that names the location.

    `setting` names the allowed ones. The sweeper calls `look` every `seconds`. The other texts are those of pages:
    the name of an item, in the plural too.
    """

    kind: trigger_sources.SourceKind
    setting: str
    below: str = ""  # how a refusal says that places below are allowed, empty if they are not
    help: str
    help_below: str = ""
    item: str
    items: str
    parse: Callable[[str], str]  # returns the location that a person sent, or raises InvalidInput
    allows: Callable[[str], bool]
    look: Callable[[pool.Connection, UUID, EventDefinition], Look]  # may raise SourceUnreadable
    seconds: float = 1.0

    @property
    def loop(self) -> str:
        """The name of the loop of the sweeper that reads it."""
        return trigger_sources.LOOPS[self.kind]

    @property
    def failpoint(self) -> str:
        """The kind of its failpoints."""
        return f"{self.kind.title()}Read"

    @property
    def allowed(self) -> tuple[str, ...]:
        """The locations that the administrator allows."""
        return tuple(map(str, getattr(settings, self.setting)))

    def check(self, text: str) -> str:
        """Return the location that a person sent. Raise InvalidInput if the administrator does not allow it."""
        location = self.parse(text)
        if not self.allows(location):
            allowed = " or ".join(self.allowed)
            raise InvalidInput(
                self.kind,
                f"must be {allowed}{self.below}"
                if allowed
                else f"is not allowed: {self.setting} names none",
            )
        return location


def read_all(source: WatchedSource, _: pool.Connection, stop: threading.Event) -> None:
    """Look at each location of this kind once, and in turns at those that have more."""
    passed: list[UUID] = []
    again: list[UUID] = []  # that have more, and had their turn
    while not stop.is_set():
        with open_transaction() as connection:
            now = pool.read_clock(connection)
            trigger = trigger_sources.lock_next(connection, source.kind, passed + again, now)
            if trigger is None:
                if not again:
                    return
                again.clear()
                continue
            look = _look(connection, source, trigger)
            now = pool.read_clock(connection)
            later = None if look.again is None else now + look.again
            trigger_sources.note_look(connection, trigger, look.problem, now, later)
            failpoints.hit("written", source.failpoint, 0)
        failpoints.hit("committed", source.failpoint, 0)
        (again if look.after() and look.has_more else passed).append(trigger)


def is_full(connection: pool.Connection, trigger: UUID) -> bool:
    """Tell whether so many events of a trigger have not started that its source must wait."""
    return (
        occurrences.count(connection, trigger, OccurrenceState.NEW, OccurrenceState.WAITING)
        >= MAX_OPEN
    )


def keep(
    connection: pool.Connection,
    trigger: UUID,
    definition: EventDefinition,
    *,
    id: str,
    key: list[str],
    data: Any,
    source: str = "",
) -> int | None:
    """Keep an event of the trigger. Return its number, or None if it is kept already."""
    event = received_events.VerifiedEvent(
        key=hash_value([str(trigger), *key]),  # no event that a person sends has it
        source=source or f"{definition.source}:{definition.location}",
        id=id,
        name=definition.event,
        subject="",
        data=json.dumps(data, ensure_ascii=False),
        by=None,
        at=pool.read_clock(connection),
    )
    number = received_events.insert(connection, event)
    if number is not None:
        occurrences.add_event(connection, trigger, number)
    return number


def refuse(
    connection: pool.Connection,
    trigger: UUID,
    definition: EventDefinition,
    *,
    id: str,
    key: list[str],
    data: dict[str, Any],
    reason: str,
) -> None:
    """Record why this is not an event."""
    data = {**data, "problem": reason}
    number = keep(connection, trigger, definition, id=id, key=key, data=data)
    if number is not None:
        occurrences.write(connection, trigger, number, state=OccurrenceState.REFUSED, reason=reason)


def decode_content(content: bytes) -> str | None:
    """Return the text of a small file or object, None for other content."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if is_text(text) else None


def parse_content(name: str, text: str | None) -> dict[str, Any]:
    """Return the text of a file, or the JSON of one whose name says so, for the data of its event. Raise NotAnEvent."""
    if text is None:
        return {}
    if not name.lower().endswith(".json"):
        return {"text": text}
    try:
        return {"json": read_json(text, "json")}
    except NotJson as exc:
        raise NotAnEvent(f"its {exc.field}: {exc.detail}") from exc
    except (ValueError, RecursionError) as exc:
        raise NotAnEvent(f"it is no JSON: {exc}") from exc


def _look(connection: pool.Connection, source: WatchedSource, trigger: UUID) -> Look:
    """Look at the location of a trigger. An error is its problem, unless it is one of Postgres that passes."""
    try:
        with open_transaction():
            row = trigger_rows.read(connection, trigger)
            signed = None if row is None else read_signed(connection, row)
            if signed is None or signed.status is not TriggerStatus.ACTIVE:
                return Look()
            definition: EventDefinition = signed.definition
            if definition.source != source.kind or not source.allows(definition.location):
                raise SourceUnreadable(f"{source.setting} does not name the {source.kind}")
            return source.look(connection, trigger, definition)
    except SourceUnreadable as exc:
        return Look(problem=str(exc), again=exc.again)
    except (Tampered, KeyMissing) as exc:
        return Look(problem=str(exc))
    except Exception as exc:
        if pool.is_passing(exc):
            raise
        log.critical(
            "Trigger %s: its %s cannot be read: %s", trigger, source.kind, exc, exc_info=exc
        )
        return Look(problem=UNKNOWN)
