"""Stores which trigger has which address, by its hash, and the deliveries that were refused there.

The row finds the trigger; the signed act of the trigger says which address and secret it has.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.store.pool import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRow:
    """How many deliveries were refused, and the last one."""

    refused: int
    refused_at: datetime | None
    refused_why: str


def write(connection: Connection, trigger: UUID, address: str) -> None:
    """Give a trigger this address in place of an earlier one. The caller has locked the row of the trigger."""
    connection.execute(
        """
        INSERT INTO runtime_triggerwebhook (trigger, address) VALUES (%s, %s)
        ON CONFLICT (trigger) DO UPDATE SET address = excluded.address,
            refused = 0, refused_at = NULL, refused_why = ''
        """,
        (trigger, address),
    )


def delete(connection: Connection, trigger: UUID) -> None:
    """Remove the address of a trigger. The caller has locked the row of the trigger."""
    connection.execute("DELETE FROM runtime_triggerwebhook WHERE trigger = %s", (trigger,))


def trigger_at(connection: Connection, address: str) -> UUID | None:
    """Return the trigger with this address."""
    row = connection.execute(
        "SELECT trigger FROM runtime_triggerwebhook WHERE address = %s", (address,)
    ).fetchone()
    return None if row is None else row[0]


def read(connection: Connection, trigger: UUID) -> WebhookRow | None:
    """Return the deliveries that were refused, None without a webhook."""
    row = connection.execute(
        "SELECT refused, refused_at, refused_why FROM runtime_triggerwebhook WHERE trigger = %s",
        (trigger,),
    ).fetchone()
    if row is None:
        return None
    return WebhookRow(refused=row[0], refused_at=row[1], refused_why=row[2])


def refuse(connection: Connection, address: str, reason: str) -> None:
    """Count a delivery that was refused."""
    connection.execute(
        """
        UPDATE runtime_triggerwebhook
        SET refused = refused + 1, refused_at = clock_timestamp(), refused_why = %s
        WHERE address = %s
        """,
        (reason, address),
    )
