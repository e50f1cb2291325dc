"""What Celery's remote control may do to a worker: ask and watch, and nothing that changes it.

Any program that can write to the broker can send these commands. So those that stop a worker, take its queues, change
its pool or make it forget tasks are replaced by a refusal, with the decorator by which Celery has commands added.
"""

from typing import Any

from celery.worker.control import control_command

KEPT = frozenset(
    {
        *("ping", "stats", "active", "reserved", "scheduled", "query_task", "registered"),
        *("active_queues", "conf", "report", "clock", "hello", "revoked", "heartbeat"),
        *("enable_events", "disable_events"),
        # Other names of some of them.
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
    """Refused: change a worker where it is started."""
    return {
        "error": "refused: workers are changed where they are started, never through the broker"
    }


for _name in REFUSED:
    control_command(name=_name, visible=False)(_refuse)
