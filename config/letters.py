"""What comes from the broker that nobody of ours has sent: it is thrown away with one line, and the worker goes on.

Celery's own consumer throws away what has the form of a message and cannot be used: other content than
JSON, tasks that nobody knows. What is not even a message would end it, because kombu believes what it reads.
"""

import logging
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

log = logging.getLogger(__name__)

# What reading bytes of any kind as a message can raise.
JUNK = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)


class Channel(redis.Channel):
    """As kombu's, but a letter that cannot be read is no reason to stop."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except (Empty, *self.connection_errors):
            raise
        except JUNK as problem:
            log.warning("junk on the broker was thrown away: %s", type(problem).__name__)
            return True


class Transport(redis.Transport):
    Channel = Channel


def use() -> None:
    """Have every connection to the broker made from now on read with these."""
    for alias in ("redis", "rediss"):
        TRANSPORT_ALIASES[alias] = f"{__name__}:Transport"
