"""The workers' keeper: which processes advance runs, alive as long as they beat.

A sweeper notes when it last looked for due runs in `runtime_loop`, under the name of its host.
"""

import socket

# The part of the heartbeat statement that says this process is alive.
BEAT = """
    INSERT INTO runtime_worker (id, host, process, agents, isolated, hung)
    VALUES (%(worker)s, %(host)s, %(process)s, %(agents)s::jsonb, %(isolated)s, %(hung)s)
    ON CONFLICT (id) DO UPDATE SET beat_at = clock_timestamp(), hung = EXCLUDED.hung
    RETURNING beat_at
"""

SWEEPER = "abeyance sweeper "
FORGET = f"""
    WITH sweepers AS (DELETE FROM runtime_loop
        WHERE starts_with(name, '{SWEEPER}') AND done_at < clock_timestamp() - interval '1 day')
    DELETE FROM runtime_worker WHERE beat_at < clock_timestamp() - interval '1 day'
"""


def sweeper_name() -> str:
    """What this host's sweepers call themselves; Postgres keeps 63 bytes of it."""
    return f"{SWEEPER}{socket.gethostname()}"[:63]
