"""Sends the messages of the outbox in a few threads of a sweeper. Any number of sweepers may do so.

A destination that hangs holds its own threads for one attempt at a time, because a lane has fewer than there are.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import BoundedSemaphore, Event, Lock
from typing import Protocol

from django.db import connections, transaction

from approvals import clock
from approvals.models import OutboxMessage
from approvals.outbox import messages
from approvals.outbox.messages import AttemptResult, Content
from runtime.store import failpoints

log = logging.getLogger(__name__)

THREADS = 8
AFTER_AN_ERROR = timedelta(minutes=1)


class MessageKind(Protocol):
    """Composes and sends the messages of one kind."""

    def compose(self, message: OutboxMessage) -> Content | datetime | None:
        """Return the content; or when to look again, before its event; None if the message is to be dropped."""

    def send(self, message: OutboxMessage) -> AttemptResult | None:
        """Make one attempt of at most ten seconds, outside of a transaction. None if there is no destination."""


class Sender:
    """Sends messages of these kinds."""

    def __init__(self, kinds: Mapping[str, MessageKind]) -> None:
        self._kinds = kinds
        self._slots = BoundedSemaphore(THREADS)
        self._claims = Lock()  # claims at once would all find the same lane free
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="outbox")

    def send_due(self, stop: Event) -> None:
        """Begin to send due messages, without waiting for answers. Threads go on until none is due."""
        messages.prune()
        while not stop.is_set() and self._slots.acquire(blocking=False):
            message = None
            try:
                message = self._claim()
            finally:
                if message is None:
                    self._slots.release()
            if message is None:
                return
            self._pool.submit(self._send_all, message, stop)

    def _send_all(self, message: OutboxMessage | None, stop: Event) -> None:
        try:
            while message is not None:
                self.send_one(message)
                message = None if stop.is_set() else self._claim()
        except Exception:  # a lease ends by itself
            log.exception("A sender of the outbox ended")
        finally:
            connections.close_all()
            self._slots.release()

    def _claim(self) -> OutboxMessage | None:
        with self._claims:
            return messages.claim()

    def send_one(self, message: OutboxMessage) -> None:
        """Make one attempt at a leased message. An error of ours leaves it to a later one."""
        kind = self._kinds.get(message.kind)
        try:
            if kind is None:  # of a later release
                messages.look_again(message, clock.now() + AFTER_AN_ERROR)
            else:
                _attempt(kind, message)
        except Exception:  # of any kind: the other messages do not wait for it
            log.exception("Message %s of the outbox is not sent", message.id)
            messages.look_again(message, clock.now() + AFTER_AN_ERROR)


def _attempt(kind: MessageKind, message: OutboxMessage) -> None:
    if not _begin(kind, message):
        return
    failpoints.hit("begun", "message", 0)
    if message.gives_up_at is not None and clock.now() >= message.gives_up_at:
        messages.end(message, OutboxMessage.EndState.GIVEN_UP)
        return
    answer = kind.send(message)
    failpoints.hit("sent", "message", 0)
    if answer is None:
        messages.end(message, OutboxMessage.EndState.DROPPED)
    else:
        messages.finish(message, answer)


def _begin(kind: MessageKind, message: OutboxMessage) -> bool:
    """Begin an attempt. Return False if there is nothing to send now."""
    if message.body is not None:
        return messages.begin(message, None)
    with transaction.atomic():
        composed = kind.compose(message)
        if isinstance(composed, Content):
            is_ours = messages.begin(message, composed)
            transaction.set_rollback(not is_ours)  # with what its composer wrote
            return is_ours
        if composed is None:
            messages.end(message, OutboxMessage.EndState.DROPPED)
        else:
            messages.look_again(message, composed)
    return False
