"""The places of a worker: how many runs it takes at once, and how many of those may be new ones.

A run keeps its place while it waits for a model, so new runs alone could fill a worker for a long time.
Some places are therefore kept for runs that go on: while the others are taken, hints at new runs are left
where they are, in the broker, for this worker later or for another one now.
"""

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from celery import signals

NEW = "runs"  # the queue of new runs
KEPT = 8  # one place in so many

_for_new = 1
# By task, from when a hint was received until it was looked at; one that Celery drops in between goes by itself.
_taken: "WeakValueDictionary[str, Any]" = WeakValueDictionary()


def furnish(places: int) -> None:
    """Say how many places this worker has."""
    global _for_new
    _for_new = max(1, places - places // KEPT)


@signals.task_received.connect
def take(request: Any, **_: Any) -> None:
    """A hint takes a place."""
    _taken[request.id] = request


@signals.task_postrun.connect
def leave(task_id: str, **_: Any) -> None:
    """The place is free again."""
    _taken.pop(task_id, None)


class Queues:
    """kombu's `queue_order_strategy`: which queues the broker is asked for next.

    It is asked for one message at a time, of the first queue that has one.
    """

    def __init__(self) -> None:
        self._all: list[str] = []

    def update(self, queues: Sequence[str]) -> None:
        self._all = sorted(queues)  # runs that go on before new ones

    def consume(self, number: int) -> list[str]:
        """Queues with places for what is in them."""
        full = len(_taken) >= _for_new
        return [queue for queue in self._all[:number] if queue != NEW or not full]

    def rotate(self, last: str) -> str:
        """The order stays as it is, whichever gave a message last."""
        return last
