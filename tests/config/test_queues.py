"""The queues that a worker reads, by its number of busy threads, and the connections that processes need."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import pytest
from celery import signals
from kombu.utils import symbol_by_name

from config import celery, processes
from config.broker import queues as worker_queues
from config.env.environment import MAX_WORKERS
from runtime import tasks
from runtime.broker import dispatch
from runtime.store import pool

HEARTBEAT = 1  # connection of its own


@pytest.fixture
def queues() -> Iterator[worker_queues.QueueOrder]:
    """Yield the queue order of a worker with 16 threads."""
    worker_queues.set_concurrency(16)
    one = worker_queues.QueueOrder()
    one.update([dispatch.NEW, dispatch.RESUMED])
    yield one
    worker_queues.set_concurrency(1)


@dataclass
class Request:
    """The part of Celery's request that a received hint needs."""

    id: str


def _asked(queues: worker_queues.QueueOrder, taken: int) -> list[str]:
    """Return the queues that the worker reads while so many threads are busy."""
    requests = [Request(id=str(number)) for number in range(taken)]
    for one in requests:
        signals.task_received.send(sender=None, request=one)
    asked = queues.consume(2)
    for one in requests:
        signals.task_postrun.send(sender=None, task_id=one.id)
    return asked


@pytest.mark.parametrize(("number", "for_new"), [(1, 1), (4, 4), (8, 7), (16, 14), (256, 224)])
def test_resumed_runs_come_first_and_reserve_an_eighth(
    queues: worker_queues.QueueOrder, number: int, for_new: int
) -> None:
    worker_queues.set_concurrency(number)
    assert _asked(queues, for_new - 1) == [dispatch.RESUMED, dispatch.NEW]
    assert _asked(queues, for_new) == [dispatch.RESUMED]
    queues.update([dispatch.ISOLATED])
    assert _asked(queues, 1) == [dispatch.ISOLATED]


def test_a_hint_that_celery_drops_frees_its_thread(queues: worker_queues.QueueOrder) -> None:
    requests = [Request(id=str(number)) for number in range(14)]
    for one in requests:
        signals.task_received.send(sender=None, request=one)
    assert queues.consume(2) == [dispatch.RESUMED]
    del one, requests
    assert queues.consume(2) == [dispatch.RESUMED, dispatch.NEW]


def test_embedded_postgres_has_enough_connections() -> None:
    worker = pool.POOL_SIZE + pool.DJANGOS_OF_A_WORKER + HEARTBEAT
    assert worker == processes.CONNECTIONS_OF_A_WORKER == 10
    for workers in (1, 8, MAX_WORKERS):
        assert processes.connections(workers) > worker * (workers + 1)


def test_a_hint_that_a_worker_takes_is_not_acknowledged() -> None:
    """An acknowledgement would wake the main thread, and the broker does not track hints."""
    task = tasks.advance_run
    asked: list[object] = []
    headers = {"id": "1", "task": dispatch.ADVANCE}
    message = Mock(headers=headers, delivery_info={}, properties={}, payload=([], {}, {}))
    made: Any = symbol_by_name(task.Request)  # type: ignore[no-untyped-call]
    hint = made(message, app=celery.app, task=task, on_ack=lambda *_: asked.append(1), body=b"")
    hint.on_accepted(0, 0.0)
    assert hint.acknowledged
    assert not asked
