"""Restricts Celery's remote control to commands that only read a worker's state.

Any program that can write to the broker can send these commands. Commands that stop a worker, change
its queues or its pool, or revoke tasks are replaced by a refusal, through Celery's own decorator for commands.
"""

from typing import Any

from celery.worker.control import control_command

KEPT = frozenset(
    {
        *("ping", "stats", "active", "reserved", "scheduled", "query_task", "registered"),
        *("active_queues", "conf", "report", "clock", "hello", "revoked", "heartbeat"),
        *("enable_events", "disable_events"),
        # Aliases
        *("dump_conf", "dump_schedule", "dump_reserved", "dump_active", "dump_revoked"),
        "dump_tasks",
    }
)
REFUSED = frozenset(
    {
        *("shutdown", "pool_grow", "pool_shrink", "pool_restart", "autoscale", "election"),
        *("add_consumer", "cancel_consumer", "rate_limit", "time_limit"),
        *("revoke", "revoke_by_stamped_headers", "terminate"),
        *("objgraph", "memsample", "memdump"),
    }
)


def _refuse(state: Any, **_: Any) -> dict[str, str]:
    """Refuse the command: change a worker where it is started."""
    return {
        "error": "refused: workers are changed where they are started, never through the broker"
    }


for _name in REFUSED:
    control_command(name=_name, visible=False)(_refuse)
