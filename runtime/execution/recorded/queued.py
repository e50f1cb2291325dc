"""Performs a trial of a prompt that a person has asked for, in a worker, and stores each run when it was tried."""

import logging
import time
from collections.abc import Callable
from uuid import UUID

from runtime.errors import RequestError
from runtime.execution.recorded.trials import MAX_SECONDS, try_each
from runtime.ports.effects import EffectHandler
from runtime.store import pool
from runtime.store.tables import prompt_trials
from runtime.store.tables.prompt_trials import StoredTrial

log = logging.getLogger(__name__)

DRAINED = "The worker was stopped before the trial was done. Start another trial."
GONE = "One of its runs was erased or archived meanwhile. Start another trial."
BROKEN = "The worker met an error, which is in its log."


def perform(trial: UUID, *, handler: EffectHandler, drains: Callable[[], bool]) -> None:
    """Perform a queued trial once. Does nothing if it was begun or does not exist."""
    with pool.pooled() as connection:
        wanted = prompt_trials.begin(connection, trial)
    if wanted is None:
        return
    try:
        problem = _try(wanted, handler, drains)
    except RequestError as exc:  # the version is not there, or its rows do not verify
        problem = str(exc)
    except Exception:
        log.exception("Trial %s of the prompt %s: failed", trial, wanted.prompt)
        problem = BROKEN
    with pool.pooled() as connection:
        prompt_trials.end(connection, trial, problem)


def _try(wanted: StoredTrial, handler: EffectHandler, drains: Callable[[], bool]) -> str:
    """Try the runs, and return why the trial ended early, or an empty text."""
    until = time.monotonic() + MAX_SECONDS
    tried: list[UUID] = []
    found = []
    for one in try_each(
        wanted.prompt,
        wanted.number,
        wanted.wanted,
        handler=handler,
        stops=lambda: drains() or time.monotonic() > until,
    ):
        tried.append(one.run)
        found.append(one.document)
        with pool.pooled() as connection:
            if not prompt_trials.save(connection, wanted.id, tried, found):
                return GONE
        if drains():
            return DRAINED
    return ""
