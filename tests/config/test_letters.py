"""Messages of a real broker, read by our transport and by kombu's own."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
import redis
from kombu.asynchronous import Hub
from kombu.connection import Connection
from kombu.entity import Queue
from kombu.messaging import Consumer

from config.broker import transport
from runtime import broker

UNREADABLE = (b"\xff\x00", b"", b"null", b"[]", b"17", b"[" * 100_000, b'{"properties": 5}')
EMBEDDED = (b"callbacks", b"chain", b"chord")


def _letter(*, body: bytes = b"", **changed: object) -> bytes:
    """Return the hint of a job as `broker` writes it, with changed headers or a changed body."""
    found = json.loads(broker._message(uuid4(), "runtime.trial"))
    found["headers"] |= changed
    if body:
        found |= {"body": body.decode(), "properties": found["properties"] | {"body_encoding": ""}}
    return json.dumps(found).encode()


@contextmanager
def _reading(url: str, queue: str) -> Iterator[Any]:
    """Reads as Celery's consumer does, from kombu's event loop."""
    hub, got = Hub(), list[Any]()
    with Connection(url) as connection:
        channel = connection.default_channel
        connection.transport.register_with_event_loop(connection.connection, hub)
        consumer = Consumer(channel, [Queue(queue, no_ack=True)], on_message=got.append)
        consumer.consume()
        loop = hub.create_loop()

        def read() -> list[Any]:
            while not got:
                next(loop)
            return got

        yield read
    hub.close()


@pytest.mark.parametrize(
    "junk",
    [
        *UNREADABLE,
        _letter(eta="2099-01-01T00:00:00"),
        _letter(compression="bzip2"),
        _letter(id=["a", "list"]),
        _letter(body=b"no JSON"),
        *(_letter(body=b'[["x"], {}, {"%s": [5]}]' % name) for name in EMBEDDED),
    ],
)
def test_malformed_messages_are_discarded_and_the_next_is_read(
    broker_url: str, junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    queue, hint = str(uuid4()), _letter()
    with redis.Redis.from_url(broker_url) as broker:
        broker.lpush(queue, junk, hint)
    with _reading(transport.build_celery_settings(broker_url)["broker_url"], queue) as read:
        got = read()
    assert [message.headers["id"] for message in got] == [json.loads(hint)["headers"]["id"]]
    assert "Broker message discarded as malformed" in caplog.text


def test_kombu_itself_still_acknowledges_no_ack_messages(broker_url: str) -> None:
    """If this fails, delete `basic_ack` from config/broker/transport.py and its report from tests/README.md."""
    assert _asked_for_an_account(broker_url, broker_url.replace("unix://", "redis+socket://")) == 1
    assert (
        _asked_for_an_account(broker_url, transport.build_celery_settings(broker_url)["broker_url"])
        == 0
    )


def _asked_for_an_account(broker_url: str, kombus: str) -> int:
    """Return how often the client asks the broker to drop a hint that it received from a `no_ack` queue."""
    queue = str(uuid4())
    with redis.Redis.from_url(broker_url) as broker:
        broker.lpush(queue, _letter())
        broker.config_resetstat()
        with _reading(kombus, queue) as read:
            read()[0].ack()
        return int(broker.info("commandstats").get("cmdstat_zrem", {"calls": 0})["calls"])


def test_kombu_itself_still_ends_on_malformed_messages(broker_url: str) -> None:
    """If this fails, delete `on_readable` from config/broker/transport.py and its report from tests/README.md."""
    queue = str(uuid4())
    with redis.Redis.from_url(broker_url) as broker:
        broker.lpush(queue, b"no JSON")
    kombus = broker_url.replace("unix://", "redis+socket://")
    with _reading(kombus, queue) as read, pytest.raises(ValueError, match="Expecting value"):
        read()
