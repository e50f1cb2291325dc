"""Performs a job that a person gave to a worker: once, and with the reason if it ends early."""

import logging
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from runtime.core.values.errors import CoreError
from runtime.errors import KeyMissing, ObjectStoreDown, RequestError, Tampered
from runtime.execution.worker import is_for_another
from runtime.ports.effects import EffectHandler
from runtime.store import pool
from runtime.store.tables.jobs import JobKind, JobRow

log = logging.getLogger(__name__)

MAX_SECONDS = 120.0  # of a replay or a trial
BROKEN = "The worker met an error, which is in its log."

R = TypeVar("R", bound=JobRow)


def perform(kind: JobKind[R], job: UUID, handler: EffectHandler, work: Callable[[R], str]) -> None:
    """Perform a queued job once. Its `work` returns why it ended early, or an empty text.

    Does nothing if it was begun or does not exist, or if only another live worker has its agent: the sweeper then sends
    it again.
    """
    with pool.pooled() as connection:
        row = kind.find(connection, job)
        if row is None:
            return
        agent: str | None = getattr(row, "agent", None)  # a trial is of a prompt
        if agent is not None and is_for_another(connection, agent, handler):
            return
        if not kind.begin(connection, job):
            return
    try:
        problem = work(row)
    except RequestError as exc:  # the version is not there, or its rows do not verify
        problem = str(exc)
    except (Tampered, KeyMissing, CoreError, ObjectStoreDown) as exc:
        problem = f"The run cannot be read: {exc}."
    except Exception:
        log.exception("Job failed: %s %s", kind.name, job)
        problem = BROKEN
    with pool.pooled() as connection:
        kind.end(connection, job, problem)
