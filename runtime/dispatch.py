"""The only sender of Celery messages: a run id as a hint that something is due.

A background thread sends, so that whoever decides never waits for the broker and opens no
connection to it. The queue is bounded and a lost hint costs nothing: the sweeper sends another.
"""

import logging
import os
import queue
import threading
from uuid import UUID

from celery import current_app

log = logging.getLogger(__name__)

ADVANCE = "runtime.advance"
QUEUE_SIZE = 1000


class Publisher:
    """One daemon thread and its queue; belongs to the process that made it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._queue: queue.Queue[UUID] = queue.Queue(QUEUE_SIZE)
        threading.Thread(target=self._run, name="publisher", daemon=True).start()

    def put(self, run: UUID) -> None:
        try:
            self._queue.put_nowait(run)
        except queue.Full:
            log.warning("hint for run %s dropped: %s are waiting for the broker", run, QUEUE_SIZE)

    def flush(self) -> None:
        """Wait until everything put so far was sent or given up."""
        self._queue.join()

    def _run(self) -> None:
        while True:
            run = self._queue.get()
            try:
                send(run)
            except Exception as exc:  # whatever the broker's client raises, the sweeper resends
                log.warning("hint for run %s not sent: %s", run, exc)
            finally:
                self._queue.task_done()


_publisher: Publisher | None = None
_lock = threading.Lock()


def hint(run: UUID) -> None:
    """Have a worker look at the run soon. Returns at once, never raises."""
    global _publisher
    with _lock:
        if _publisher is None or _publisher.process != os.getpid():
            _publisher = Publisher()
        publisher = _publisher
    publisher.put(run)


def send(run: UUID) -> None:
    """Send the hint now, from a thread that may wait for the broker."""
    current_app.send_task(ADVANCE, args=[str(run)], retry=False, ignore_result=True)
