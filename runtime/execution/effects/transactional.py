"""Transactional calls: what the tool writes through Django commits with the journal entry, or not at all.

The tool runs in its thread inside one transaction, without a lock on the run. Its result goes to the runner, which is
the only one to append to the journal: it answers with a step, the last statement of the tool's own transaction.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from django.db import Error, close_old_connections, connection, transaction

from runtime.errors import LeaseLost, RuntimeFault
from runtime.execution.effects.outcomes import rolled_back, timed_out
from runtime.execution.effects.running import EffectFinished, RunningEffect, no_abort
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult
from runtime.store import pool, steps

log = logging.getLogger(__name__)

# Such a call holds its connection until a run has written its step. One connection is left to runs that need it for
# theirs, or each could wait for the other.
_room = threading.BoundedSemaphore(pool.DJANGOS_OF_A_WORKER - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalResult(EffectFinished):
    """A result whose transaction is still open. The tool's thread waits for the step to commit it with."""

    _step: queue.SimpleQueue[steps.Step | None] = field(default_factory=queue.SimpleQueue)
    _problem: queue.SimpleQueue[BaseException | None] = field(default_factory=queue.SimpleQueue)

    def commit(self, step: steps.Step) -> BaseException | None:
        """Have the tool's thread commit with this step. Return the error if it was rolled back."""
        self._step.put(step)
        return self._problem.get()

    def discard(self) -> None:
        """Have the tool's thread roll back."""
        self._step.put(None)

    def write_step(self) -> bool:
        """Tool's thread: wait for the step and write it. False if there is none. Raises LeaseLost."""
        step = self._step.get()
        if step is None:
            return False
        if steps.commit(pool.djangos(), step, prepare=False) is not steps.Result.WRITTEN:
            raise LeaseLost
        return True

    def report(self, problem: BaseException | None) -> None:
        """Tool's thread: the transaction has ended."""
        self._problem.put(problem)


def transact(effect: RunningEffect, perform: Callable[[ToolRequest], Outcome]) -> Outcome | None:
    """Perform the call in a transaction of this thread. None if it had a result, which is then with the runner.

    An outcome that is returned was rolled back.
    """
    request = effect.request
    assert isinstance(request, ToolRequest)
    outcome = timed_out(request)
    result: TransactionalResult | None = None
    problem: Exception | None = None
    try:
        close_old_connections()
        with _room, transaction.atomic(), _abortable(effect):
            if not effect.is_settled:  # its deadline may have passed while it waited
                outcome = rolled_back(perform(request))
            if isinstance(outcome, ToolResult) and effect.settle():
                result = TransactionalResult(effect=effect, outcome=outcome)
                effect.submit(result)
            transaction.set_rollback(result is None or not result.write_step())
    except (Error, psycopg.Error, RuntimeFault) as exc:
        problem = exc
    except Exception as exc:
        log.exception("a transactional call ended badly: %s", request.key)
        problem = exc
    finally:
        connection.close()
    if result is not None:
        result.report(problem)
        return None
    if problem is not None:
        return ToolFailure(error=f"{type(problem).__name__}: {problem}", retryable=True)
    return outcome


@contextmanager
def _abortable(effect: RunningEffect) -> Iterator[None]:
    """Let `effect.abort` end the transaction, with its locks, for as long as it is open."""
    backend, lock = pool.backend(pool.djangos()), threading.Lock()

    def abort() -> None:
        with lock:  # or the connection could serve another transaction by now
            if effect.abort is abort:
                _terminate(backend, effect)

    effect.abort = abort
    try:
        yield
    finally:
        with lock:
            effect.abort = no_abort


def _terminate(backend: int, effect: RunningEffect) -> None:
    try:
        pool.terminate(backend)
    except psycopg.Error as exc:
        log.warning("the transaction of %s is still open: %s", effect.place, exc)
