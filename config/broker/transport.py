"""Discards messages of the broker that are no hints of ours, with one line in the log. The worker continues.

Celery and kombu believe what they read. What is not even JSON would end the worker; a task that names others to call
afterwards is never counted as done, so a few hundred of them would fill all places of a worker for good.

The seam is kombu's own for transports: a name in its table, and a subclass that overrides what has no underscore.
docs/explanation/upstream-bugs.md has the report; tests/config/test_letters.py fails when kombu stops to need it.
"""

import json
import logging
import ssl
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis, virtual

log = logging.getLogger(__name__)

SCHEME = "abeyance"

# What reading bytes of any kind as a message can raise.
JUNK = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)

# What a hint never asks of Celery: to unpack it, to wait with it, and to start other tasks.
ASKS = ("compression", "eta", "expires", "group")


class Message(virtual.Message):
    """A message as kombu reads it. Raise one of JUNK for a task that is no hint."""

    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        headers = payload["headers"]
        is_task = "task" in headers  # else a remote control command
        if is_task and not (isinstance(headers["id"], str) and not any(map(headers.get, ASKS))):
            raise ValueError("asks for more than a hint may")
        super().__init__(payload, channel=channel, **kwargs)
        if is_task:
            _, _, embedded = json.loads(self.body)
            if self.content_type != "application/json" or any((embedded or {}).values()):
                raise ValueError("asks for more than a hint may")


class Channel(redis.Channel):
    Message = Message

    def basic_ack(self, delivery_tag: object, multiple: bool = False) -> None:
        """Ask nothing of the broker: it keeps no account of `no_ack` queues, which is all there are here."""


class Transport(redis.Transport):
    Channel = Channel

    def on_readable(self, fileno: int) -> None:  # type: ignore[override]  # so does kombu's
        """As kombu's, but a message that cannot be read is no reason to stop."""
        try:
            super().on_readable(fileno)
        except JUNK as problem:
            log.warning("junk on the broker was thrown away: %s", type(problem).__name__)


def connection(redis_url: str) -> dict[str, Any]:
    """Celery's settings for a broker at an address as redis-py writes it, read by this transport."""
    TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"
    scheme, _, place = redis_url.partition("://")
    if scheme == "unix":
        return {"broker_url": f"{SCHEME}+socket://{place}", "broker_use_ssl": None}
    # kombu verifies no certificate by default. An address may still say ?ssl_cert_reqs=none.
    tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED} if scheme == "rediss" else None
    return {"broker_url": f"{SCHEME}://{place}", "broker_use_ssl": tls}
