"""What a worker reads from the broker, and whom it obeys.

It reads the hints of runs by itself, with one command for each, and advances each run in a thread of its own. Celery
reads those of jobs: its way from the broker to a task took an eighth of a worker's processor time.

A run occupies a thread while it waits for a model, so new runs could fill a worker for a long time. Some threads are
therefore reserved for resumed runs. While the others are taken, the hints of new runs stay in the broker, for this
worker later or for another one now.

Any program that can write to the broker can send commands of remote control. Those that stop a worker, change its
queues or its pool, or revoke tasks are replaced by a refusal, through Celery's own decorator for commands.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery.worker.control import control_command

from runtime import broker

log = logging.getLogger(__name__)

RESERVED = 8  # one of this many threads is reserved for resumed runs
WAIT_SECONDS = 1.0  # at most, for a hint or an end; then it looks whether its process drains


class HintReader(threading.Thread):
    """Advances the runs of these queues, so many at once. It ends when its process drains and the runs are released."""

    def __init__(
        self,
        queues: Sequence[str],
        concurrency: int,
        advance_run: Callable[[str], object],
        is_draining: Callable[[], bool],
    ) -> None:
        super().__init__(name="hints", daemon=True)
        self._queues = sorted(queues)  # resumed runs first
        self._concurrency = concurrency
        self._most_new = max(1, concurrency - concurrency // RESERVED)
        self._advance_run = advance_run
        self._is_draining = is_draining
        self._active = 0
        self._ended = threading.Condition()  # a run

    def list_readable_queues(self) -> list[str]:
        """Return the queues whose hints this process can take now."""
        if self._active >= self._concurrency:
            return []
        has_room = self._active < self._most_new
        return [queue for queue in self._queues if has_room or queue != broker.NEW]

    def run(self) -> None:
        """Read until the process drains. Each second, tell the others that this process reads its own queue."""
        is_reached, listens_until = True, 0.0
        with ThreadPoolExecutor(self._concurrency, "run") as threads:
            while not self._is_draining():
                try:
                    if (now := time.monotonic()) >= listens_until:
                        broker.listen()
                        listens_until = now + WAIT_SECONDS
                    # With no thread free, hints stay in the broker.
                    if queues := self.list_readable_queues():
                        hint = broker.take_hint(queues, WAIT_SECONDS)
                        is_reached = True
                        if hint is not None:
                            self._submit(threads, hint)
                    else:
                        self._await_end()
                except ConnectionError as exc:
                    if is_reached:
                        log.warning("No hints are read until the broker is back: %s", exc)
                    is_reached = False
                    self._await_end()
                except Exception:  # or no hint would be read until this process ends
                    log.exception("No hints are read for a second")
                    self._await_end()
            broker.stop_listening()

    def follow(self, hint: str) -> None:
        """Advance the run of a hint. An error is logged: the sweeper sends the hint again."""
        try:
            self._advance_run(hint)
        except BaseException:  # some libraries raise panics that are no Exception
            log.exception("A run was not advanced")
        finally:
            with self._ended:
                self._active -= 1
                self._ended.notify()

    def _submit(self, threads: ThreadPoolExecutor, hint: str) -> None:
        """Have a thread follow the hint. If none can be started, the error is raised, and a later thread follows it."""
        with self._ended:
            self._active += 1
        threads.submit(self.follow, hint)

    def _await_end(self) -> None:
        """Wait a second, or until a run ends."""
        with self._ended:
            self._ended.wait(WAIT_SECONDS)


KEPT = frozenset(
    {
        *("ping", "stats", "active", "reserved", "scheduled", "query_task", "registered"),
        *("active_queues", "conf", "report", "clock", "hello", "revoked", "heartbeat"),
        *("enable_events", "disable_events"),
        # Aliases
        *("dump_conf", "dump_schedule", "dump_reserved", "dump_active", "dump_revoked"),
        "dump_tasks",
    }
)
REFUSED = frozenset(
    {
        *("shutdown", "pool_grow", "pool_shrink", "pool_restart", "autoscale", "election"),
        *("add_consumer", "cancel_consumer", "rate_limit", "time_limit"),
        *("revoke", "revoke_by_stamped_headers", "terminate"),
        *("objgraph", "memsample", "memdump"),
    }
)


def _refuse(state: Any, **_: Any) -> dict[str, str]:
    """Refuse the command: change a worker where it is started."""
    return {
        "error": "refused: workers are changed where they are started, never through the broker"
    }


for _name in REFUSED:
    control_command(name=_name, visible=False)(_refuse)
