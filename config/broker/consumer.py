"""What a worker changes in Celery's reading of the broker: which queues it reads, its confirmations, whom it obeys.

It chooses the queues by how many new runs it already works on. A run occupies a thread of the worker while it waits for
a model, so new runs could fill a worker for a long time. Some threads are therefore reserved for resumed runs. While
the others are taken, messages of new runs stay in the broker, for this worker later or for another one now.

Any program that can write to the broker can send commands of remote control. Those that stop a worker, change its
queues or its pool, or revoke tasks are replaced by a refusal, through Celery's own decorator for commands.
"""

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from celery import signals
from celery.worker.control import control_command
from celery.worker.request import Request

NEW = "runs"  # the queue of new runs
RESERVED = 8  # one of this many threads is reserved for resumed runs

_max_new = 1
# The tasks at work, by id. A task that Celery drops disappears with its request.
_active: "WeakValueDictionary[str, Any]" = WeakValueDictionary()


def set_concurrency(runs: int) -> None:
    """Set how many runs this worker works on at once."""
    global _max_new
    _max_new = max(1, runs - runs // RESERVED)


@signals.task_received.connect
def count_received(request: Any, **_: Any) -> None:
    """Count a received task."""
    _active[request.id] = request


@signals.task_postrun.connect
def count_finished(task_id: str, **_: Any) -> None:
    """Stop counting a finished task."""
    _active.pop(task_id, None)


class QueueOrder:
    """Implements kombu's `queue_order_strategy`: the queues to read next.

    A worker reads one message at a time, from the first of these queues that has one.
    """

    def __init__(self) -> None:
        self._all: list[str] = []

    def update(self, queues: Sequence[str]) -> None:
        """Set the queues to choose from."""
        self._all = sorted(queues)  # resumed runs first

    def consume(self, number: int) -> list[str]:
        """Return the queues whose messages this worker can take now."""
        full = len(_active) >= _max_new
        return [queue for queue in self._all[:number] if queue != NEW or not full]

    def rotate(self, last: str) -> str:
        """Keep the order."""
        return last


class UnacknowledgedRequest(Request):  # type: ignore[misc]  # Celery has no types
    """A request that is not acknowledged: the broker does not track hints.

    Celery would wake its main thread for each acknowledgement.
    """

    def acknowledge(self) -> None:
        """Record the acknowledgement without sending it."""
        self.acknowledged = True


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
