"""Reads the suspected runs that no process tries yet, and records that one is tried alone."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from runtime.store.pool import Connection
from runtime.store.tables import kill_switches

GROUPS = (64, 8)  # runs tried together at most: before the first lost group, and before the second
ALONE = len(GROUPS)  # lost groups after which a run is tried alone
MOST = 2_000  # suspects that are read at once

_WAITING = f"""
    SELECT id, losses, extract(epoch FROM clock_timestamp() - due_at)::float FROM runtime_run
    WHERE isolated AND owner IS NULL AND status <> 'quarantined' AND due_at <= clock_timestamp()
        AND id <> ALL(%s) AND NOT ({kill_switches.BLOCKS_RUN})
    ORDER BY due_at, id LIMIT {MOST}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A suspected run that `waits` for so many seconds. `losses` counts the processes in a row that it lost since."""

    run: UUID
    losses: int
    waits: float


def waiting(connection: Connection, *, but: Collection[UUID]) -> list[Suspect]:
    """Return the suspects that no process tries, `but` these, in the order of their trials."""
    rows = connection.execute(_WAITING, (list(but),))
    return [Suspect(run=run, losses=losses, waits=waits) for run, losses, waits in rows]


def count_as_alone(connection: Connection, run: UUID) -> None:
    """Count a suspect that is tried alone as if it had lost its groups: each further loss is its own."""
    connection.execute(
        "UPDATE runtime_run SET losses = greatest(losses, %s) WHERE id = %s AND isolated",
        (ALONE, run),
    )
