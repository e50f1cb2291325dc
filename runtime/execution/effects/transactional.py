"""Calls of `transactional` tools: what they write through Django commits with the journal entry, or not at all.

The tool runs in its thread inside one transaction, without any lock on the run. Its result is handed
to the coordinator, which stays the only appender: it answers with the step to write, and the step is
the last statement of the tool's own transaction.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from django.db import Error, close_old_connections, connection, transaction

from runtime.core.decisions import Blame
from runtime.errors import LeaseLost, RuntimeFault
from runtime.ports import Outcome, ToolFault, ToolRequest, ToolResult, Unknown
from runtime.store import pool, steps

log = logging.getLogger(__name__)

# Such a call holds its connection until a run has written its step. One connection is left to runs that need it for
# theirs, or each could wait for the other.
_room = threading.BoundedSemaphore(pool.DJANGOS_OF_A_WORKER - 1)


class Handoff:
    """One result on its way into the journal. The tool's thread waits while the coordinator decides."""

    def __init__(self, request: ToolRequest) -> None:
        self.request = request
        self.outcome: Outcome = Unknown(error="it did not end")
        self._step: queue.SimpleQueue[steps.Step | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._taken = threading.Lock()
        self._backend: int | None = None
        self._backend_kept = threading.Lock()

    def take(self) -> bool:
        """Whether the caller comes first and delivers the outcome: either the tool or its deadline."""
        return self._taken.acquire(blocking=False)

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed before the call began."""
        return self._taken.locked()

    def begin(self) -> None:
        """Remember the connection of the transaction. Called in the tool's thread."""
        self._backend = pool.backend(pool.djangos())

    def end(self) -> None:
        """Forget the connection, which is about to be closed. Called in the tool's thread."""
        with self._backend_kept:
            self._backend = None

    def cut_off(self) -> "Handoff":
        """End the transaction of a hanging tool, with its locks, and return the outcome to deliver instead.

        The tool's writes cannot be committed in any case, because it never gets a step to commit them with.
        """
        try:
            with self._backend_kept:
                if self._backend is not None:
                    pool.terminate(self._backend)
        except psycopg.Error as exc:
            log.warning("the transaction of %s is still open: %s", self.request.key, exc)
        late = Handoff(self.request)
        error = f"it did not end within {self.request.deadline:g} s, and was rolled back"
        late.outcome = ToolFault(error=error, again=True, blame=Blame.TIME)
        return late

    @property
    def waits_for_step(self) -> bool:
        """Whether there is a result to commit; anything else was rolled back already."""
        return isinstance(self.outcome, ToolResult)

    def write(self, step: steps.Step) -> BaseException | None:
        """Coordinator: commit the tool's writes with this step. What went wrong, if anything."""
        self._step.put(step)
        return self._done.get()

    def drop(self) -> None:
        """Coordinator: roll the tool's writes back."""
        self._step.put(None)

    def wait_for_step(self) -> "steps.Step | None":
        return self._step.get()

    def finish(self, problem: BaseException | None) -> None:
        self._done.put(problem)


class _RollBack(Exception):
    """Leaves the transaction without a commit."""


def transact(
    perform: Callable[[ToolRequest], Outcome],
    handoff: Handoff,
    deliver: Callable[[Handoff], None],
) -> None:
    """Perform the call in a transaction of this thread and commit it with the step that comes back."""
    handed = False
    problem: BaseException | None = None
    try:
        close_old_connections()
        with _room, transaction.atomic(), _cut_off(handoff.request.deadline):
            if handoff.is_over:
                raise _RollBack
            handoff.begin()
            handoff.outcome = rolled_back(perform(handoff.request))
            if not handoff.waits_for_step or not handoff.take():
                raise _RollBack
            handed = True
            deliver(handoff)
            step = handoff.wait_for_step()
            if step is None:
                raise _RollBack
            if steps.commit(pool.djangos(), step, prepare=False) is not steps.Result.WRITTEN:
                raise LeaseLost
    except _RollBack:
        pass
    except (Error, psycopg.Error, RuntimeFault) as exc:
        problem = exc
    except Exception as exc:
        log.exception("a transactional call ended badly: %s", handoff.request.key)
        problem = exc
    finally:
        handoff.end()
        connection.close()
    if handed:
        handoff.finish(problem)
        return
    if problem is not None:
        handoff.outcome = ToolFault(error=f"{type(problem).__name__}: {problem}", again=True)
    if handoff.take():
        deliver(handoff)
    else:
        log.warning("%s ended long after its deadline, and was rolled back", handoff.request.key)


def rolled_back(outcome: Outcome) -> Outcome:
    """Whatever is not a result was rolled back, so nothing is uncertain about it."""
    if isinstance(outcome, Unknown):
        return ToolFault(error=outcome.error, again=True, blame=outcome.blame)
    return outcome


@contextmanager
def _cut_off(seconds: float) -> Iterator[None]:
    """Cancel what the transaction's backend is doing when the deadline has passed."""
    timer = threading.Timer(seconds, pool.djangos().cancel_safe)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # the connection may be another thread's at once
