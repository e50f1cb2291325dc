"""Events that were sent from outside: their ids, for how long each is remembered, and who sent it."""

from dataclasses import dataclass
from datetime import datetime

from runtime.store.pool import Connection

KEPT_DAYS = 30  # for which an id is known; after that it is a new one
PRUNED = 1_000  # rows that one statement deletes


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalEvent:
    """An event as it is remembered. `waits` is how many it ended, `digest` that of its name and data."""

    id: str
    name: str
    digest: str
    waits: int
    at: datetime


def insert(
    connection: Connection, *, id: str, name: str, digest: str, by: str, token: str | None
) -> bool:
    """Record the event. False if its id is used. Waits for a transaction that uses it at the same time."""
    done = connection.execute(
        """
        INSERT INTO runtime_outsideevent (id, name, digest, waits, sent_by, token)
        VALUES (%s, %s, %s, 0, %s, %s) ON CONFLICT (id) DO NOTHING
        """,
        (id, name, digest, by, token),
    )
    return done.rowcount == 1


def count(connection: Connection, id: str, waits: int) -> None:
    """Note how many waits it ended, in the transaction that ends them."""
    connection.execute("UPDATE runtime_outsideevent SET waits = %s WHERE id = %s", (waits, id))


def read(connection: Connection, id: str) -> ExternalEvent:
    """An event whose id is used. Raises LookupError."""
    row = connection.execute(
        "SELECT id, name, digest, waits, at FROM runtime_outsideevent WHERE id = %s", (id,)
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no event {id}")
    return ExternalEvent(id=row[0], name=row[1], digest=row[2], waits=row[3], at=row[4])


def prune(connection: Connection) -> int:
    """Forget some of those that are old enough. Returns how many.

    They are looked up once: by `IN`, Postgres may ask again for each row, and then the limit holds for each time.
    """
    return connection.execute(
        """
        DELETE FROM runtime_outsideevent WHERE id = ANY(ARRAY(
            SELECT id FROM runtime_outsideevent
            WHERE at < clock_timestamp() - %s * interval '1 day' LIMIT %s FOR UPDATE SKIP LOCKED))
        """,
        (KEPT_DAYS, PRUNED),
    ).rowcount
