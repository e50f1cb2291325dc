"""The keeper of the sweeper's loops: when each last did its work, whichever sweeper it was."""

from runtime.database import Connection

# After which a loop is late: the due runs are looked for every second, the rest is done every hour.
LATE_SECONDS = {"due_runs": 60, "partitions": 7_200, "retention": 7_200, "ledger": 7_200}


def note(connection: Connection, loop: str) -> None:
    connection.execute(
        """
        INSERT INTO runtime_loop (name, done_at) VALUES (%s, clock_timestamp())
        ON CONFLICT (name) DO UPDATE SET done_at = clock_timestamp()
        """,
        (loop,),
    )
