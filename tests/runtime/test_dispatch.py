"""Hints leave by a thread of their own: whoever gives one neither waits for the broker nor talks to it."""

import socket
import threading
from uuid import uuid4

import pytest

from config import celery
from runtime import dispatch


@pytest.fixture(autouse=True)
def _fresh_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_publisher", None)


def test_a_hint_opens_no_connection_in_the_thread_that_gives_it(
    monkeypatch: pytest.MonkeyPatch, live_broker: str
) -> None:
    connects: list[threading.Thread] = []
    connect = socket.socket.connect

    def watched(self: socket.socket, address: object) -> None:
        connects.append(threading.current_thread())
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", watched)
    dispatch.hint(uuid4())
    assert dispatch._publisher is not None
    dispatch._publisher.flush()
    assert connects
    assert threading.current_thread() not in connects


def test_a_hint_arrives_as_a_task_that_carries_the_run_id_only(live_broker: str) -> None:
    run = uuid4()
    with celery.app.connection_for_read() as connection:
        queue = connection.SimpleQueue(dispatch.RESUMED)
        queue.clear()
        dispatch.send(run)
        message = queue.get(timeout=10)
        message.ack()
        assert message.headers["task"] == dispatch.ADVANCE
        assert message.payload[0] == [str(run)]
        queue.close()


def test_a_broker_that_is_gone_costs_the_hint_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = uuid4()
    dispatch.hint(run)
    assert dispatch._publisher is not None
    dispatch._publisher.flush()
    assert f"hint for run {run} not sent" in caplog.text


def test_hints_beyond_the_queue_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = threading.Event()
    monkeypatch.setattr(dispatch, "send", lambda run: blocked.wait())
    monkeypatch.setattr(dispatch, "QUEUE_SIZE", 1)
    for _ in range(3):
        dispatch.hint(uuid4())
    blocked.set()
    assert "dropped" in caplog.text
