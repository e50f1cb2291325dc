"""Stores which triggers read a source, and the last look at it. The signed act of the trigger names it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from runtime.store.pool import Connection

NOTED = timedelta(seconds=3)  # between two writes of the time of a look that found nothing to say


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """The last look at a source that succeeded, and why a later one did not, empty if it did."""

    looked_at: datetime | None
    problem: str


def write(connection: Connection, trigger: UUID, kind: str, place: str) -> None:
    """Have the sweeper read a source for a trigger. The caller has locked the row of the trigger."""
    connection.execute(
        """
        INSERT INTO runtime_triggersource (trigger, kind, place) VALUES (%s, %s, %s)
        ON CONFLICT (trigger) DO UPDATE SET kind = excluded.kind, place = excluded.place,
            looked_at = NULL, problem = '', cursor = '', not_before = NULL
        """,
        (trigger, kind, place),
    )


def delete(connection: Connection, trigger: UUID) -> None:
    """Read nothing for a trigger. The caller has locked the row of the trigger."""
    connection.execute("DELETE FROM runtime_triggersource WHERE trigger = %s", (trigger,))


def lock_next(
    connection: Connection, kind: str, passed: Sequence[UUID], now: datetime
) -> UUID | None:
    """Lock a source of an active trigger, unless another transaction has it; without those `passed`.

    Those without a problem come first, so one that answers late holds up no other.
    """
    row = connection.execute(
        """
        SELECT s.trigger FROM runtime_triggersource s JOIN runtime_trigger t ON t.id = s.trigger
        WHERE s.kind = %s AND t.state = 'active' AND s.trigger <> ALL(%s)
            AND (s.not_before IS NULL OR s.not_before <= %s)
        ORDER BY s.problem <> '' LIMIT 1 FOR NO KEY UPDATE OF s SKIP LOCKED
        """,
        (kind, list(passed), now),
    ).fetchone()
    return None if row is None else row[0]


def note(
    connection: Connection,
    trigger: UUID,
    problem: str,
    now: datetime,
    not_before: datetime | None = None,
) -> None:
    """Write the outcome of a look at a source that the caller has locked, if it is news, and when the next one is."""
    connection.execute(
        """
        UPDATE runtime_triggersource
        SET problem = %(problem)s,
            looked_at = CASE WHEN %(problem)s = '' THEN %(now)s ELSE looked_at END,
            not_before = %(not_before)s
        WHERE trigger = %(trigger)s AND (problem <> %(problem)s
            OR not_before IS DISTINCT FROM %(not_before)s
            OR problem = '' AND (looked_at IS NULL OR looked_at < %(before)s))
        """,
        {
            "trigger": trigger,
            "problem": problem,
            "now": now,
            "before": now - NOTED,
            "not_before": not_before,
        },
    )


def read(connection: Connection, trigger: UUID) -> SourceRow | None:
    """Return the last look at the source of a trigger, None without a source."""
    row = connection.execute(
        "SELECT looked_at, problem FROM runtime_triggersource WHERE trigger = %s", (trigger,)
    ).fetchone()
    return None if row is None else SourceRow(looked_at=row[0], problem=row[1])


def cursor(connection: Connection, trigger: UUID) -> str:
    """Return the name after which the next look begins, empty for the first one."""
    row = connection.execute(
        "SELECT cursor FROM runtime_triggersource WHERE trigger = %s", (trigger,)
    ).fetchone()
    return "" if row is None else str(row[0])


def turn_to(connection: Connection, trigger: UUID, cursor: str) -> None:
    """Have the next look begin after this name. The caller has locked the source."""
    connection.execute(
        "UPDATE runtime_triggersource SET cursor = %s WHERE trigger = %s AND cursor <> %s",
        (cursor, trigger, cursor),
    )
