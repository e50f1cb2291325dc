"""The workers' keeper: which processes advance runs, alive as long as they beat.

A sweeper writes nothing down: its connection bears its name, and Postgres knows when it last asked.
"""

import socket

# The part of the heartbeat statement that says this process is alive.
BEAT = """
    INSERT INTO runtime_worker (id, host, process, agents, isolated, hung)
    VALUES (%(worker)s, %(host)s, %(process)s, %(agents)s::jsonb, %(isolated)s, %(hung)s)
    ON CONFLICT (id) DO UPDATE SET beat_at = clock_timestamp(), hung = EXCLUDED.hung
    RETURNING beat_at
"""

FORGET = "DELETE FROM runtime_worker WHERE beat_at < clock_timestamp() - interval '1 day'"


def sweeper_name() -> str:
    """What this host's sweepers call themselves; Postgres keeps 63 bytes of it."""
    return f"abeyance sweeper {socket.gethostname()}"[:63]
