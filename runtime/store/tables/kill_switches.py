"""Kill switches: who stopped which agent, or all agents, and why, and who lifted the stop.

While a stop is on, no worker starts an effect of a run in which the agent works. The rows stay: they
are the record of the act and of its end, each written by the statement that does it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from runtime.store.pool import Connection

EVERY_AGENT = ""

# As part of other statements: the names of all that is stopped, and whether the run of a row is.
ACTIVE = "ARRAY(SELECT agent FROM runtime_stop WHERE lifted_at IS NULL)"
BLOCKS_RUN = """
    EXISTS (SELECT FROM runtime_stop
        WHERE lifted_at IS NULL AND runtime_stop.agent IN ('', runtime_run.agent))
    AND NOT EXISTS (SELECT FROM runtime_signal WHERE run_id = runtime_run.id)
"""

_COLUMNS = "id, agent, stopped_by, reason, at, lifted_by, lifted_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillSwitch:
    """One stop; `agent` is empty for all of them, `stopped_by` None for the command line."""

    id: int
    agent: str
    stopped_by: str | None
    reason: str
    at: datetime
    lifted_by: str | None
    lifted_at: datetime | None


def engage(connection: Connection, row: Mapping[str, str | None]) -> KillSwitch | None:
    """Stop an agent. None if it is stopped already."""
    found = connection.execute(
        f"""
        INSERT INTO runtime_stop (agent, stopped_by, token, reason)
        VALUES (%(agent)s, %(by)s, %(token)s, %(reason)s)
        ON CONFLICT (agent) WHERE lifted_at IS NULL DO NOTHING
        RETURNING {_COLUMNS}
        """,
        row,
    ).fetchone()
    return None if found is None else _switch(*found)


def disengage(
    connection: Connection, stop: int, *, by: str | None, token: str | None
) -> KillSwitch | None:
    """End a stop. None if it is not on."""
    found = connection.execute(
        f"""
        UPDATE runtime_stop SET lifted_at = clock_timestamp(), lifted_by = %(by)s,
            lifted_token = %(token)s
        WHERE id = %(stop)s AND lifted_at IS NULL RETURNING {_COLUMNS}
        """,
        {"stop": stop, "by": by, "token": token},
    ).fetchone()
    return None if found is None else _switch(*found)


def list_switches(connection: Connection, *, lifted: bool, limit: int) -> list[KillSwitch]:
    """Those that are on, or those that are over; the newest first."""
    rows = connection.execute(
        f"""
        SELECT {_COLUMNS} FROM runtime_stop WHERE (lifted_at IS NOT NULL) = %(lifted)s
        ORDER BY id DESC LIMIT %(limit)s
        """,
        {"lifted": lifted, "limit": limit},
    )
    return [_switch(*row) for row in rows.fetchall()]


def _switch(
    number: int,
    agent: str,
    stopped_by: str | None,
    reason: str,
    at: datetime,
    lifted_by: str | None,
    lifted_at: datetime | None,
) -> KillSwitch:
    return KillSwitch(
        id=number,
        agent=agent,
        stopped_by=stopped_by,
        reason=reason,
        at=at,
        lifted_by=lifted_by,
        lifted_at=lifted_at,
    )
