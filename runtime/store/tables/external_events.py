"""Stores external events: their ids, the time each is kept, and their senders."""

from dataclasses import dataclass
from datetime import datetime

from runtime.store.pool import Connection

KEPT_DAYS = 30  # days an id is kept; after that the same id counts as new
PRUNED = 1_000  # rows that one statement deletes, here and of received events


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalEventRow:
    """A stored event. `waits` counts the waits it ended; `digest` is that of its name and data."""

    id: str
    name: str
    digest: str
    waits: int
    at: datetime


def insert(
    connection: Connection, *, id: str, name: str, digest: str, by: str, token: str | None
) -> bool:
    """Record the event. False if its id is used. Waits for another transaction that uses the id at the same time."""
    done = connection.execute(
        """
        INSERT INTO runtime_externalevent (id, name, digest, waits, sent_by, token)
        VALUES (%s, %s, %s, 0, %s, %s) ON CONFLICT (id) DO NOTHING
        """,
        (id, name, digest, by, token),
    )
    return done.rowcount == 1


def count(connection: Connection, id: str, waits: int) -> None:
    """Record how many waits it ended, in the transaction that ends them."""
    connection.execute("UPDATE runtime_externalevent SET waits = %s WHERE id = %s", (waits, id))


def read(connection: Connection, id: str) -> ExternalEventRow:
    """Return the event with this id. Raises LookupError."""
    row = connection.execute(
        "SELECT id, name, digest, waits, at FROM runtime_externalevent WHERE id = %s", (id,)
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no event {id}")
    return ExternalEventRow(id=row[0], name=row[1], digest=row[2], waits=row[3], at=row[4])


def prune(connection: Connection) -> int:
    """Delete some events that are old enough. Returns how many.

    They are selected once: with `IN`, Postgres may repeat the selection for each row, and then the limit would not
    hold.
    """
    return connection.execute(
        """
        DELETE FROM runtime_externalevent WHERE id = ANY(ARRAY(
            SELECT id FROM runtime_externalevent
            WHERE at < clock_timestamp() - %s * interval '1 day' LIMIT %s FOR UPDATE SKIP LOCKED))
        """,
        (KEPT_DAYS, PRUNED),
    ).rowcount
