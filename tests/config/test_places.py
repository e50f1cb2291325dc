"""Which queues a worker asks for, by how many of its places are taken; and connections for all of it."""

from collections.abc import Iterator

import pytest
from celery.worker import state

from config import celery, places, processes
from config.env import MOST_WORKERS
from runtime import database, dispatch, executor, seats

HEARTBEAT = 1  # connection of its own


@pytest.fixture
def queues() -> Iterator[places.Queues]:
    """Of a worker with 16 places."""
    places.furnish(16)
    one = places.Queues()
    one.update([dispatch.NEW, dispatch.RESUMED])
    yield one
    places.furnish(1)


def _asked(queues: places.Queues, monkeypatch: pytest.MonkeyPatch, taken: int) -> list[str]:
    monkeypatch.setattr(state, "reserved_requests", range(taken))
    return queues.consume(2)


def test_runs_that_go_on_come_first_and_an_eighth_of_the_places_is_theirs(
    queues: places.Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    for taken in range(14):
        assert _asked(queues, monkeypatch, taken) == [dispatch.RESUMED, dispatch.NEW]
    for taken in (14, 15):
        assert _asked(queues, monkeypatch, taken) == [dispatch.RESUMED]


@pytest.mark.parametrize(("number", "for_new"), [(1, 1), (4, 4), (8, 7), (256, 224)])
def test_every_worker_takes_new_runs(
    queues: places.Queues, monkeypatch: pytest.MonkeyPatch, number: int, for_new: int
) -> None:
    places.furnish(number)
    assert dispatch.NEW in _asked(queues, monkeypatch, for_new - 1)
    assert dispatch.NEW not in _asked(queues, monkeypatch, for_new)


def test_a_process_for_suspects_asks_for_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    places.furnish(1)
    one = places.Queues()
    one.update([dispatch.ISOLATED])
    assert _asked(one, monkeypatch, 0) == _asked(one, monkeypatch, 1) == [dispatch.ISOLATED]


def test_the_broker_is_asked_in_this_order() -> None:
    assert (
        celery.app.conf.broker_transport_options["queue_order_strategy"] == "config.places:Queues"
    )
    assert places.NEW == dispatch.NEW


def test_postgres_of_make_up_has_a_connection_for_everybody() -> None:
    worker = database.POOL_SIZE + seats.SEATS + HEARTBEAT + executor.TOOL_SLOTS
    assert worker == processes.CONNECTIONS_OF_A_WORKER
    for workers in (1, 8, MOST_WORKERS):
        assert processes.connections(workers) > worker * (workers + 1)
