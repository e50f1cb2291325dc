"""The only sender to the broker: run ids as hints that something is due, and rings of the doorbell.

Background threads send, so that whoever decides never waits for the broker and opens no connection
to it. What waits is bounded, and what is lost costs nothing: the sweeper sends another hint, and a
page that missed a ring asks by itself.
"""

import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

import redis
from celery import current_app
from django.conf import settings

log = logging.getLogger(__name__)

ADVANCE = "runtime.advance"
NEW, RESUMED, ISOLATED = "runs", "resumed", "isolated"  # the queues
QUEUE_SIZE = 1000
CHANNEL = "abeyance:doorbell"
ROOM = 10_000  # hints in the broker; more would be sent again before a worker has taken them
FLUSH_SECONDS = 5.0
GATHER_SECONDS = 0.2  # rings of the same moment travel together

S = TypeVar("S", "Publisher", "Ringer")


class Publisher:
    """One daemon thread and its queue; belongs to the process that made it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._queue: queue.Queue[tuple[UUID, str]] = queue.Queue(QUEUE_SIZE)
        threading.Thread(target=self._run, name="publisher", daemon=True).start()

    def put(self, run: UUID, queue_name: str) -> None:
        try:
            self._queue.put_nowait((run, queue_name))
        except queue.Full:
            log.warning("hint for run %s dropped: %s are waiting for the broker", run, QUEUE_SIZE)

    def flush(self) -> None:
        """Wait until everything put so far was sent or given up."""
        self._queue.join()

    def is_flushed(self, within: float) -> bool:
        """Whether everything was sent or given up, once it is; no later than `within` seconds."""
        done = self._queue.all_tasks_done
        with done:
            return done.wait_for(lambda: not self._queue.unfinished_tasks, within)

    def _run(self) -> None:
        while True:
            run, queue_name = self._queue.get()
            try:
                send(run, queue_name)
            except Exception as exc:  # whatever the broker's client raises, the sweeper resends
                log.warning("hint for run %s not sent: %s", run, exc)
            finally:
                self._queue.task_done()


class Ringer:
    """One daemon thread that rings for everything that changed since it rang last."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._changed = threading.Condition()
        self._runs: dict[str, bool] = {}
        self._people: set[str] = set()
        self._broker = redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=1
        )
        self._reaches = True
        threading.Thread(target=self._run, name="ringer", daemon=True).start()

    def put(self, run: UUID, *, inbox: bool) -> None:
        with self._changed:
            name = str(run)
            if len(self._runs) < QUEUE_SIZE or name in self._runs:
                self._runs[name] = self._runs.get(name, False) or inbox
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
            self._ring([{"runs": runs}, *[{"person": person} for person in people]])

    def _ring(self, rings: Sequence[Mapping[str, object]]) -> None:
        try:
            for ring in rings:
                self._broker.publish(CHANNEL, json.dumps(ring))
        except (redis.RedisError, OSError) as exc:
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


def has_room() -> bool:
    """Whether the broker can use more hints: all are sent, and it has fewer than 10,000. May wait a few seconds."""
    if _publisher is not None and not _publisher.is_flushed(FLUSH_SECONDS):
        return False
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=1
        ) as broker:
            lengths = [int(broker.llen(name)) for name in (NEW, RESUMED)]
    except (redis.RedisError, OSError):
        return False
    return sum(lengths) < ROOM


def ring(run: UUID, *, inbox: bool) -> None:
    """Tell open pages that a run has changed, and whether somebody's inbox has. Returns at once, never raises."""
    _the_ringer().put(run, inbox=inbox)


def ring_person(person: str) -> None:
    """Have the open pages of a person asked whether they still may listen. Returns at once, never raises."""
    _the_ringer().put_person(person)


def send(run: UUID, queue_name: str = RESUMED) -> None:
    """Send the hint now, from a thread that may wait for the broker."""
    current_app.send_task(
        ADVANCE, args=[str(run)], queue=queue_name, retry=False, ignore_result=True
    )


def _the_ringer() -> Ringer:
    global _ringer
    with _lock:
        _ringer = _own(_ringer, Ringer)
        return _ringer


def _own(known: S | None, make: Callable[[], S]) -> S:
    """The one of this process: threads do not live on in a fork."""
    return known if known is not None and known.process == os.getpid() else make()
