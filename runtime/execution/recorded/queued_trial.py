"""Performs the trial of a prompt that an admin gave to a worker."""

import time
from collections.abc import Callable
from uuid import UUID

from runtime.execution.recorded.problems import problem_of
from runtime.execution.recorded.trials import MAX_SECONDS, try_each
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.effects import EffectHandler
from runtime.store import pool
from runtime.store.tables.jobs import prompt_trials
from runtime.store.tables.jobs.prompt_trials import MAX_RUNS, StoredTrial

DRAINED = "The worker was stopped before the trial was done. Start another trial."
GONE = "One of its runs was erased or archived meanwhile. Start another trial."


def perform(trial: UUID, *, handler: EffectHandler, drains: Callable[[], bool]) -> None:
    """Perform a queued trial once. Does nothing if it was begun or does not exist."""
    with pool.pooled() as connection:
        stored_trial = prompt_trials.begin(connection, trial)
    if stored_trial is None:
        return
    problem = problem_of(
        lambda: _try(stored_trial, handler, drains),
        f"Trial {trial} of the prompt {stored_trial.prompt}",
    )
    with pool.pooled() as connection:
        prompt_trials.JOBS.end(connection, trial, problem)


def _try(stored_trial: StoredTrial, handler: EffectHandler, drains: Callable[[], bool]) -> str:
    """Try the runs, and return why the trial ended early, or an empty text.

    Raise Forbidden if the person who asked for it has lost the right since.
    """
    wiring.access().require(Actor(person=stored_trial.by), "admin")
    until = time.monotonic() + MAX_SECONDS
    tried: list[UUID] = []
    documents = []
    for tried_run in try_each(
        stored_trial.prompt,
        stored_trial.number,
        min(stored_trial.wanted, MAX_RUNS),  # the row is not signed
        handler=handler,
        stops=lambda: drains() or time.monotonic() > until,
    ):
        tried.append(tried_run.run)
        documents.append(tried_run.document)
        with pool.pooled() as connection:
            if not prompt_trials.save(connection, stored_trial.id, tried, documents):
                return GONE
        if drains():
            return DRAINED
    return ""
