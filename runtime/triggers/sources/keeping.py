"""Keeps what a source holds as events of its trigger alone, each once by its key, or why it is none."""

from typing import Any
from uuid import UUID

from runtime.core.digest import sha256_of
from runtime.store.pool import Connection
from runtime.store.tables.triggers import received_events, trigger_events
from runtime.store.tables.triggers.trigger_events import State
from runtime.triggers.events.definition import Definition

# Events of a trigger that have not started. The rest stays at its source until there are fewer, so that none is skipped
# because too many wait.
MAX_OPEN = 1_000


class Refused(Exception):
    """A file or an entry that is no event; the message says why."""


def keep(
    connection: Connection,
    trigger: UUID,
    one: Definition,
    *,
    source: str,
    id: str,
    key: list[str],
    data: Any,
) -> int | None:
    """Keep an event of the trigger. Return its number, or None if it is kept already."""
    number = received_events.insert(
        connection,
        key=sha256_of([str(trigger), *key]),  # no event that a person sends has it
        source=source,
        id=id,
        name=one.event,
        subject="",
        data=data,
        by=None,
        token=None,
    )
    if number is not None:
        trigger_events.add(connection, trigger, number)
    return number


def refuse(
    connection: Connection, trigger: UUID, one: Definition, *, why: str, **kept: Any
) -> None:
    """Record why this is no event. The arguments are those of `keep`."""
    number = keep(connection, trigger, one, **kept)
    if number is not None:
        trigger_events.write(connection, trigger, number, state=State.REFUSED, reason=why)
