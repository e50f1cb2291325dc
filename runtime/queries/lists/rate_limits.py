"""Reads the model calls that wait for the rate limit of their provider: of one run, and by model for the overview."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from pydantic import TypeAdapter, ValidationError

from runtime.core.run.continuation import RunStatus
from runtime.core.run.retries import RateLimitWait
from runtime.queries.lists.totals import MOST

# A paused, stopped or ended run starts no model call.
MAY_WAIT = frozenset({RunStatus.WAITING, RunStatus.SUSPENDED, RunStatus.RUNNING, RunStatus.QUEUED})

_WAITS = TypeAdapter(tuple[RateLimitWait, ...])
_BY_MODEL = """
    SELECT one->>'model', count(*), min((one->>'until')::timestamptz), min((one->>'since')::timestamptz),
        max((one->>'tries')::integer)
    FROM (SELECT status, limited FROM runtime_run WHERE ended_at IS NULL LIMIT %(most)s) AS active,
        jsonb_array_elements(limited) AS one
    WHERE status = ANY(%(statuses)s)
    GROUP BY 1 ORDER BY 2 DESC, 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedModel:
    """The `calls` of a model that wait for its provider. `next_at` is the time of the next one.

    The first waits since `since`; `tries` is how often the provider has put off one of them at most.
    """

    model: str
    calls: int
    next_at: datetime
    since: datetime
    tries: int


def read(stored: Any) -> tuple[RateLimitWait, ...]:
    """Return the waits in the column of a run; none if it has none, or if they cannot be read."""
    try:
        return _WAITS.validate_python(stored or ())
    except ValidationError:
        return ()


def text(waits: Sequence[RateLimitWait]) -> str:
    """Say which models wait, until when, and how often they were put off."""
    return "; ".join(
        f"{one.model} waits for the rate limit of its provider until"
        f" {one.until.isoformat(timespec='seconds')}, put off {one.tries} times"
        for one in waits
    )


def limited_models() -> tuple[LimitedModel, ...]:
    """Count the waiting calls by model. The caller has checked that the actor may read every run."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_MODEL, {"most": MOST, "statuses": [str(one) for one in MAY_WAIT]})
        rows = cursor.fetchall()
    return tuple(
        LimitedModel(model=model, calls=calls, next_at=next_at, since=since, tries=tries)
        for model, calls, next_at, since, tries in rows
    )
