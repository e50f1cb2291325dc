"""Transactional calls: the tool's writes through Django commit with the journal entry, or not at all.

The tool runs in its thread inside one transaction, without a lock on the run. Its result goes to the runner, because
only the runner appends to the journal. The runner answers with a step, which becomes the last statement of the tool's
transaction.
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
from runtime.execution.effects.outcomes import make_timeout_outcome, mark_rolled_back
from runtime.execution.effects.running import EffectFinished, RunningEffect, no_abort
from runtime.ports.approvals import StatementPart
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult
from runtime.store import pool, steps

log = logging.getLogger(__name__)

# Such a call holds its connection until a runner has written its step. One connection is kept free for those steps,
# or call and runner could wait for each other.
_room = threading.BoundedSemaphore(pool.DJANGOS_OF_A_WORKER - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalResult(EffectFinished):
    """A result whose transaction is still open. The tool's thread waits for the step to commit it with."""

    _step: queue.SimpleQueue[tuple[steps.Step, tuple[StatementPart, ...]] | None] = field(
        default_factory=queue.SimpleQueue
    )
    _problem: queue.SimpleQueue[BaseException | None] = field(default_factory=queue.SimpleQueue)

    def commit(
        self, step: steps.Step, extra_statements: tuple[StatementPart, ...] = ()
    ) -> BaseException | None:
        """Have the tool's thread commit with this step. Return the error if it was rolled back."""
        self._step.put((step, extra_statements))
        return self._problem.get()

    def discard(self) -> None:
        """Have the tool's thread roll back."""
        self._step.put(None)

    def write_step(self) -> bool:
        """Wait for the step and write it, in the tool's thread. False if there is none. Raises LeaseLost."""
        message = self._step.get()
        if message is None:
            return False
        step, extra_statements = message
        if (
            steps.commit(pool.use_django_connection(), step, extra_statements)
            is not steps.CommitResult.WRITTEN
        ):
            raise LeaseLost
        return True

    def report(self, problem: BaseException | None) -> None:
        """Report the end of the transaction to the runner, from the tool's thread."""
        self._problem.put(problem)


def transact(effect: RunningEffect, perform: Callable[[ToolRequest], Outcome]) -> Outcome | None:
    """Perform the call in a transaction of this thread. None if the runner has its result.

    A returned outcome was rolled back.
    """
    request = effect.request
    assert isinstance(request, ToolRequest)
    outcome = make_timeout_outcome(request)
    result: TransactionalResult | None = None
    problem: Exception | None = None
    try:
        close_old_connections()
        with _room, transaction.atomic(), _allow_abort(effect, request.key):
            if not effect.is_settled:  # its deadline may have passed while it waited
                outcome = mark_rolled_back(perform(request))
            if isinstance(outcome, ToolResult) and effect.settle():
                result = TransactionalResult(effect=effect, outcome=outcome)
                effect.submit(result)
            transaction.set_rollback(result is None or not result.write_step())
    except (Error, psycopg.Error, RuntimeFault) as exc:
        problem = exc
    except Exception as exc:
        log.exception("Call %s: its transaction failed", request.key)
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
def _allow_abort(effect: RunningEffect, key: str) -> Iterator[None]:
    """Let `effect.abort` end the transaction, with its locks, while it is open."""
    backend, lock = pool.read_backend_id(pool.use_django_connection()), threading.Lock()

    def abort() -> None:
        with lock:  # or the connection could already serve another transaction
            if effect.abort is not abort:
                return
            try:
                pool.terminate(backend)
            except psycopg.Error as exc:
                log.warning("Call %s: its transaction is still open: %s", key, exc)

    effect.abort = abort
    try:
        yield
    finally:
        with lock:
            effect.abort = no_abort
