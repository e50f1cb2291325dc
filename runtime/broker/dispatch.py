"""The only sender to the broker: run ids as hints that something is due, and rings of the doorbell.

Background threads send, so that a decision never waits for the broker and opens no connection to it. What waits is
bounded, and what is lost costs nothing: the sweeper sends another hint, and a page that missed a ring asks by itself.
"""

import base64
import functools
import json
import logging
import os
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID, uuid4

import redis
from celery import current_app
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

log = logging.getLogger(__name__)

ADVANCE = "runtime.advance"
NEW, RESUMED, ISOLATED = QUEUES = "runs", "resumed", "isolated"
QUEUE_SIZE = 1000
BATCH = 200  # hints that a publisher sends at once
CHANNEL = "abeyance:doorbell"
ROOM = 10_000  # hints in a queue; with more, a hint would be repeated before a worker takes it
GATHER_SECONDS = 0.2  # rings of the same moment travel together

Hint = tuple[UUID, str]  # a run and the queue of the workers that are to look at it

S = TypeVar("S", "Publisher", "Ringer")


class Publisher:
    """One daemon thread and its queue; belongs to the process that made it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._queue: queue.Queue[Hint] = queue.Queue(QUEUE_SIZE)
        threading.Thread(target=self._run, name="publisher", daemon=True).start()

    def put(self, run: UUID, queue_name: str) -> None:
        try:
            self._queue.put_nowait((run, queue_name))
        except queue.Full:
            log.warning("hint for run %s dropped: %s are waiting for the broker", run, QUEUE_SIZE)

    def flush(self) -> None:
        """Wait until everything put so far was sent or given up."""
        self._queue.join()

    def _run(self) -> None:
        while True:
            hints = [self._queue.get()]
            while len(hints) < BATCH and not self._queue.empty():  # no other thread takes any
                hints.append(self._queue.get())
            try:
                send_all(hints)
            except Exception as exc:  # of any kind: the sweeper sends them again
                more = len(hints) - 1
                log.warning("hint for run %s not sent, nor %d more: %s", hints[0][0], more, exc)
            for _ in hints:
                self._queue.task_done()


class Ringer:
    """One daemon thread that rings for everything that changed since it rang last."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._changed = threading.Condition()
        self._runs: dict[UUID, bool] = {}
        self._people: set[str] = set()
        self._reaches = True
        threading.Thread(target=self._run, name="ringer", daemon=True).start()

    def put(self, run: UUID, *, inbox: bool) -> None:
        known = self._runs.get(run)
        if known or (known is not None and not inbox):
            return  # it is told of later than now in any case, so no lock is needed to see it
        with self._changed:
            if len(self._runs) < QUEUE_SIZE or run in self._runs:
                self._runs[run] = inbox or self._runs.get(run, False)
            self._changed.notify()

    def put_person(self, person: str) -> None:
        with self._changed:
            self._people.add(person)
            self._changed.notify()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._runs or self._people)
            pause.wait(GATHER_SECONDS)
            with self._changed:
                runs, self._runs = self._runs, {}
                people, self._people = self._people, set()
            named = {str(run): inbox for run, inbox in runs.items()}
            self._ring([{"runs": named}, *[{"person": person} for person in people]])

    def _ring(self, rings: Sequence[Mapping[str, object]]) -> None:
        try:
            with _reached() as broker:
                for ring in rings:
                    broker.publish(CHANNEL, json.dumps(ring))
        except ConnectionError as exc:
            if self._reaches:
                log.warning("the doorbell is not rung until the broker is back: %s", exc)
            self._reaches = False
        else:
            self._reaches = True


_publisher: Publisher | None = None
_ringer: Ringer | None = None
_lock = threading.Lock()


def hint(run: UUID, queue_name: str = RESUMED) -> None:
    """Have a worker look at the run soon. Returns at once, never raises.

    A run that goes on is looked at before one that is NEW; one that is ISOLATED by a process of its own.
    """
    global _publisher
    with _lock:
        _publisher = _own(_publisher, Publisher)
    _publisher.put(run, queue_name)


def queues_with_room() -> frozenset[str]:
    """The queues with fewer than 10,000 hints. Raises ConnectionError if the broker is out of reach."""
    with _reached() as broker:
        return frozenset(name for name in QUEUES if int(broker.llen(name)) < ROOM)


def ring(run: UUID, *, inbox: bool) -> None:
    """Tell open pages that a run has changed, and whether an inbox has. Returns at once, never raises."""
    _the_ringer().put(run, inbox=inbox)


def ring_person(person: str) -> None:
    """Have the open pages of a person asked whether they still may listen. Returns at once, never raises."""
    _the_ringer().put_person(person)


def send_all(hints: Sequence[Hint]) -> None:
    """Send hints now, those of a queue in one command. Raises ConnectionError."""
    messages: defaultdict[str, list[str]] = defaultdict(list)
    for run, queue_name in hints:
        messages[queue_name].append(_message(run, queue_name))
    with _reached() as broker:
        for queue_name, texts in messages.items():
            broker.lpush(queue_name, *texts)


def _message(run: UUID, queue_name: str) -> str:
    """The task as Celery makes it, in the envelope that kombu puts around it for Redis.

    `send_task` does the same with a hundred times the work. A test compares the two.
    """
    headers, _, (_, keywords, embedded), _ = _task()
    task = str(uuid4())
    own = {"id": task, "root_id": task, "argsrepr": repr([str(run)])}
    return json.dumps(
        {
            "body": base64.b64encode(
                json.dumps([[str(run)], keywords, embedded]).encode()
            ).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {**headers, **own},
            "properties": {
                "correlation_id": task,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue_name},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": task,
            },
        }
    )


@functools.cache
def _task() -> Any:
    """What all tasks of this process have in common: headers, properties, body and what is told of a sent one."""
    return current_app.amqp.as_task_v2("", ADVANCE, ignore_result=True)


@contextmanager
def _reached() -> "Iterator[redis.Redis]":
    """The broker. Raises ConnectionError if it is out of reach."""
    try:
        yield _broker(settings.REDIS_URL)
    except (redis.RedisError, OSError) as exc:
        raise ConnectionError(f"the broker is out of reach: {exc}") from exc


@functools.cache
def _broker(url: str) -> "redis.Redis":
    """The connections of this process to the broker; threads share them, and a child of a fork opens its own."""
    return redis.Redis.from_url(
        url,
        socket_timeout=2,
        socket_connect_timeout=1,
        health_check_interval=25,
        retry=Retry(NoBackoff(), 1),
    )


def _the_ringer() -> Ringer:
    global _ringer
    with _lock:
        _ringer = _own(_ringer, Ringer)
        return _ringer


def _own(known: S | None, make: Callable[[], S]) -> S:
    """The one of this process: threads do not live on in a fork."""
    return known if known is not None and known.process == os.getpid() else make()
