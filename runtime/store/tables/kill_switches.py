"""Stores kill switches: who stopped which agent, or all agents, when and why, and who ended that.

While a kill switch is engaged, no worker starts an effect of a run in which its agent works. The rows stay as a
record of both actions, each written by the statement that performs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from runtime.store import pool
from runtime.store.pool import Connection

EVERY_AGENT = ""

# Parts of other statements: the names of all stopped agents, and whether one of them blocks a run. A run with a signal
# is not blocked, because a person may have cancelled it: its worker receives the signal and starts no effect.
ACTIVE = "ARRAY(SELECT agent FROM runtime_killswitch WHERE lifted_at IS NULL)"
BLOCKS_RUN = """
    EXISTS (SELECT FROM runtime_killswitch
        WHERE lifted_at IS NULL AND runtime_killswitch.agent IN ('', runtime_run.agent))
    AND NOT EXISTS (SELECT FROM runtime_signal WHERE run_id = runtime_run.id)
"""

_COLUMNS = "id, agent, stopped_by, reason, at, lifted_by, lifted_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillSwitchRow:
    """One kill switch; `agent` is empty for all agents, `stopped_by` None for the command line."""

    id: int
    agent: str
    stopped_by: str | None
    reason: str
    at: datetime
    lifted_by: str | None
    lifted_at: datetime | None


def engage(connection: Connection, values: Mapping[str, str | None]) -> KillSwitchRow | None:
    """Engage a kill switch. None if the agent already has one."""
    row = connection.execute(
        f"""
        INSERT INTO runtime_killswitch (agent, stopped_by, token, reason)
        VALUES (%(agent)s, %(by)s, %(token)s, %(reason)s)
        ON CONFLICT (agent) WHERE lifted_at IS NULL DO NOTHING
        RETURNING {_COLUMNS}
        """,
        values,
    ).fetchone()
    return None if row is None else pool.decode_row(KillSwitchRow, row)


def disengage(
    connection: Connection, stop: int, *, by: str | None, token: str | None
) -> KillSwitchRow | None:
    """Disengage a kill switch. None if it is not engaged."""
    row = connection.execute(
        f"""
        UPDATE runtime_killswitch SET lifted_at = clock_timestamp(), lifted_by = %(by)s,
            lifted_token = %(token)s
        WHERE id = %(stop)s AND lifted_at IS NULL RETURNING {_COLUMNS}
        """,
        {"stop": stop, "by": by, "token": token},
    ).fetchone()
    return None if row is None else pool.decode_row(KillSwitchRow, row)


def list_switches(connection: Connection, *, lifted: bool, limit: int) -> list[KillSwitchRow]:
    """List the engaged kill switches, or with `lifted` the disengaged ones, newest first."""
    rows = connection.execute(
        f"""
        SELECT {_COLUMNS} FROM runtime_killswitch WHERE (lifted_at IS NOT NULL) = %(lifted)s
        ORDER BY id DESC LIMIT %(limit)s
        """,
        {"lifted": lifted, "limit": limit},
    )
    return [pool.decode_row(KillSwitchRow, row) for row in rows.fetchall()]


def list_stopped_agents(connection: Connection) -> frozenset[str]:
    """Return the names of the stopped agents, with EVERY_AGENT if all are."""
    rows = connection.execute("SELECT agent FROM runtime_killswitch WHERE lifted_at IS NULL")
    return frozenset(agent for (agent,) in rows.fetchall())
