"""Discards broker messages that we did not send, logs one line for each, and keeps the worker running.

Celery and kombu trust every message. One that is not JSON would end the worker. A task with callbacks is never
counted as finished, so a few hundred of them would occupy all threads of a worker until it restarts.

The transport uses kombu's own extension point: a name in its table, and a subclass that overrides public methods.
tests/README.md has the report; tests/config/test_letters.py fails when kombu no longer needs it.
"""

import json
import logging
import ssl
from contextlib import suppress
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis, virtual
from redis.exceptions import OutOfMemoryError

log = logging.getLogger(__name__)

SCHEME = "signoff"

# Errors that parsing arbitrary bytes as a message can raise
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)

# Headers that a hint never has: they make Celery decompress it, delay it or start other tasks.
ASKS = ("compression", "eta", "expires", "group")


class Message(virtual.Message):
    """Parses a message as kombu does. Raises one of UNREADABLE for a task other than a hint."""

    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        headers = payload["headers"]
        is_task = "task" in headers  # otherwise a remote control command
        if is_task and not (isinstance(headers["id"], str) and not any(map(headers.get, ASKS))):
            raise ValueError("asks for more than a hint may")
        super().__init__(payload, channel=channel, **kwargs)
        if is_task:
            _, _, embedded = json.loads(self.body)
            if self.content_type != "application/json" or any((embedded or {}).values()):
                raise ValueError("asks for more than a hint may")


class QoS(redis.QoS):
    """Tracks no messages, because all queues are `no_ack`."""

    def restore_visible(self, *_: object, **__: object) -> None:
        """Restore nothing: there is nothing to restore, and a full broker would refuse the lock for it."""


class Channel(redis.Channel):
    """A channel that sends no acknowledgements, and opens on a full broker, so that a worker can empty it."""

    Message = Message
    QoS = QoS

    def basic_ack(self, delivery_tag: object, multiple: bool = False) -> None:
        """Send nothing: all queues are `no_ack`, so the broker tracks no messages."""

    def queue_bind(self, *args: Any, **kwargs: Any) -> None:
        """Store which queue an exchange has. Jobs are sent to their queue directly, so they do not need it."""
        try:
            super().queue_bind(*args, **kwargs)
        except OutOfMemoryError as problem:
            log.warning("The broker is full. This worker starts, and empties it: %s", problem)

    def maybe_refresh_binding_expiry(self) -> None:
        """Store again which queue the exchange for remote control has, once the broker has room."""
        with suppress(OutOfMemoryError):
            super().maybe_refresh_binding_expiry()


class Transport(redis.Transport):
    """A transport that discards malformed messages."""

    Channel = Channel

    def on_readable(self, fileno: int) -> None:  # type: ignore[override]  # so does kombu's
        """Read messages as kombu does, but discard malformed ones."""
        try:
            super().on_readable(fileno)
        except UNREADABLE as problem:
            log.warning("Broker message discarded as malformed: %s", type(problem).__name__)


def build_celery_settings(redis_url: str) -> dict[str, Any]:
    """Return Celery's settings for reading from the broker at a redis-py address with this transport."""
    TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"
    scheme, _, address = redis_url.partition("://")
    if scheme == "unix":
        return {"broker_url": f"{SCHEME}+socket://{address}", "broker_use_ssl": None}
    # kombu verifies no certificate by default. An address may still say ?ssl_cert_reqs=none.
    tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED} if scheme == "rediss" else None
    return {"broker_url": f"{SCHEME}://{address}", "broker_use_ssl": tls}
