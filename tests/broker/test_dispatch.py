"""A thread of its own sends the hints, so that callers never talk to the broker or wait for it."""

import base64
import json
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis

from config import celery
from runtime.broker import dispatch


@pytest.fixture(autouse=True)
def _fresh_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_thread", None)
    dispatch._broker.cache_clear()


@pytest.fixture
def broker(live_broker: str) -> Iterator["redis.Redis"]:
    """Yield a client of the broker, whose queues are empty."""
    client = redis.Redis.from_url(live_broker)
    client.delete(*dispatch.QUEUES)
    yield client
    client.delete(*dispatch.QUEUES)
    client.close()


def test_a_hint_opens_no_connection_in_the_thread_that_gives_it(
    monkeypatch: pytest.MonkeyPatch, live_broker: str
) -> None:
    connects: list[threading.Thread] = []
    connect = socket.socket.connect

    def watched(self: socket.socket, address: object) -> None:
        connects.append(threading.current_thread())
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", watched)
    dispatch.dispatch(uuid4())
    assert dispatch._thread is not None
    dispatch._thread.flush()
    assert connects
    assert threading.current_thread() not in connects


def test_a_message_equals_one_of_celery(broker: "redis.Redis") -> None:
    """Or a version of Celery or kombu has changed the form, and `dispatch._message` must follow."""
    run = uuid4()
    celery.app.send_task(
        dispatch.ADVANCE, args=[str(run)], queue=dispatch.NEW, retry=False, ignore_result=True
    )
    dispatch.send_all([(run, dispatch.NEW)])
    ours, celerys = [_comparable(message) for message in broker.lrange(dispatch.NEW, 0, -1)]
    assert ours == celerys
    assert ours["headers"]["task"] == dispatch.ADVANCE
    assert ours["body"][0] == [str(run)]


def _comparable(message: bytes | str) -> dict[str, Any]:
    """Return every value at any depth, except those that differ in each message."""
    found: dict[str, Any] = json.loads(message)
    headers, properties = found["headers"], found["properties"]
    assert headers.pop("id") == headers.pop("root_id") == properties.pop("correlation_id")
    assert properties.pop("delivery_tag")
    properties.pop("reply_to", None)  # of results, which are ignored
    return {**found, "body": json.loads(base64.b64decode(found["body"]))}


def test_hints_travel_together_each_to_its_queue_in_order(broker: "redis.Redis") -> None:
    hints = [(uuid4(), queue) for queue in dispatch.QUEUES for _ in range(2)]
    dispatch.send_all(hints)
    found = [
        (UUID(_comparable(message)["body"][0][0]), queue)
        for queue in dispatch.QUEUES
        for message in reversed(broker.lrange(queue, 0, -1))  # taken from the right
    ]
    assert found == hints


def test_a_queue_with_ten_thousand_hints_has_no_room(
    broker: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "ROOM", 2)
    dispatch.send_all(
        [(uuid4(), queue) for queue in (dispatch.NEW, dispatch.NEW, dispatch.RESUMED)]
    )
    assert dispatch.queues_with_room() == {dispatch.RESUMED, dispatch.ISOLATED}


def test_a_broker_that_is_gone_costs_the_hint_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ConnectionError, match="the broker is unreachable"):
        dispatch.queues_with_room()
    run = uuid4()
    dispatch.dispatch(run)
    assert dispatch._thread is not None
    dispatch._thread.flush()
    assert f"Run {run}: hint not sent" in caplog.text


def test_hints_beyond_the_queue_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = threading.Event()
    monkeypatch.setattr(dispatch, "send_all", lambda hints: blocked.wait())
    monkeypatch.setattr(dispatch, "QUEUE_SIZE", 1)
    for _ in range(3):
        dispatch.dispatch(uuid4())
    blocked.set()
    assert "dropped" in caplog.text


def test_an_inbox_that_changes_after_its_run_is_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rung: queue.Queue[Any] = queue.Queue()
    monkeypatch.setattr(dispatch.Notifier, "_publish", lambda _, rings: rung.put(rings))
    notifier, run = dispatch.Notifier(), uuid4()
    for inbox in (False, True, False):
        notifier.put(run, inbox=inbox)
    assert rung.get(timeout=60) == [{"runs": {str(run): True}}]
    notifier.put(run, inbox=False)  # a published run is queued again
    assert rung.get(timeout=60) == [{"runs": {str(run): False}}]
