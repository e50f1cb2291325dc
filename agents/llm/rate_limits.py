"""Limits the rate of requests to a model whose provider rejected some: one row per model, shared by all workers.

After an answer 429 or 529, or a named time, the model gets no request until that time. Then requests are sent one by
one. Each takes a queue number, and the highest released number grows by one in each interval (`gap`), which begins
with the named time, up to a minute. Each rejection doubles the interval, up to twice the time that it names. Each
success shortens it, and each minute without a rejection halves it, until there is none. Times are the database's. A
waiting request holds neither a thread nor a connection.
"""

import logging
import math
import random
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from runtime.core.values.call_options import MAX_RETRY_AFTER
from runtime.ports.effects import RateLimited
from runtime.store import pool

log = logging.getLogger(__name__)

DEFAULT_PAUSE_SECONDS = 1.0  # used if the provider names none
MAX_INTERVAL_SECONDS = 60.0  # after the first rejection
INTERVAL_FACTOR = 0.85  # of the interval after each success
MIN_INTERVAL_SECONDS = 0.02  # a shorter interval counts as none
MAX_WAIT_SECONDS = 5.0  # a longer wait is checked again, because the interval may be shorter

# Minutes since the last change of the row. Fifteen of them end any interval.
_MINUTES = "least(15, greatest(0, extract(epoch FROM clock_timestamp() - b.since) / 60))::float8"

_INTERVAL = f"b.gap * power(0.5, {_MINUTES})"

# The highest queue number that may be called now: the integral of 1 / interval. It does not grow before `since`.
_RELEASED = f"(b.served + {60 / math.log(2)} / b.gap * (power(2, {_MINUTES}) - 1))"

_READ = f"""
    SELECT clock_timestamp(), (SELECT {_INTERVAL} FROM agents_ratelimit b WHERE b.provider = %(model)s)
"""

_TAKE = f"""
    UPDATE agents_ratelimit AS b SET issued = CASE WHEN %(queue_number)s > 0
        OR extract(epoch FROM b.since - clock_timestamp()) > %(longest)s THEN b.issued
        ELSE greatest(b.issued + 1, floor({_RELEASED})::bigint) END
    WHERE b.provider = %(model)s AND b.gap > 0
    RETURNING clock_timestamp(), b.since, {_INTERVAL}, {_RELEASED}, b.issued
"""

# Concurrent requests are refused together, so only the first refusal doubles the interval.
_ON_REJECTED = f"""
    INSERT INTO agents_ratelimit AS b (provider, gap, served, since, issued, hit_at)
    VALUES (%(model)s, %(interval)s, 1, clock_timestamp() + %(pause)s * interval '1 second', 0,
        clock_timestamp())
    ON CONFLICT (provider) DO UPDATE SET
        gap = CASE WHEN {_INTERVAL} < %(none)s THEN %(interval)s
            WHEN b.hit_at >= %(began)s THEN {_INTERVAL}
            ELSE greatest({_INTERVAL}, least(2 * {_INTERVAL}, 2 * %(interval)s)) END,
        served = CASE WHEN {_INTERVAL} < %(none)s THEN b.issued + 1 ELSE {_RELEASED} END,
        since = greatest(b.since, clock_timestamp() + %(pause)s * interval '1 second'),
        hit_at = CASE WHEN b.hit_at >= %(began)s THEN b.hit_at ELSE clock_timestamp() END
"""

_ON_SUCCESS = f"""
    UPDATE agents_ratelimit AS b SET served = {_RELEASED},
        since = greatest(b.since, clock_timestamp()),
        gap = CASE WHEN {_INTERVAL} * %(factor)s < %(none)s THEN 0
            ELSE {_INTERVAL} * %(factor)s END
    WHERE b.provider = %(model)s AND b.gap > 0 AND b.hit_at < %(began)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """The request may be sent. `at` is the database time; `is_limited` says whether the model has an interval."""

    at: datetime
    is_limited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTooLong:
    """The model may get no request for so many seconds, which the request does not wait. It took no queue number."""

    seconds: float


class RateLimits:
    """The rate limits of all models. Calls ask them before each request and report its result.

    A model is named with its provider, `openai:gpt-x`.
    """

    def acquire(
        self, model: str, queue_number: int, longest: float = math.inf
    ) -> Permit | RateLimited | WaitTooLong | None:
        """Say whether a request may be sent now. `queue_number` is the one from before, 0 for none.

        `longest` is for how many seconds the provider may want none before the request gives up.
        Return None if Postgres is unreachable: then no request waits.
        """
        try:
            row, values = None, {"model": model, "queue_number": queue_number, "longest": longest}
            with pool.pooled() as connection:
                limit = pool.fetch_row(connection, _READ, values)
                assert limit is not None  # a SELECT without FROM has one row
                now, interval = limit
                if interval is not None and interval >= MIN_INTERVAL_SECONDS:
                    row = connection.execute(_TAKE, values).fetchone()
            if row is None:
                return Permit(at=now, is_limited=False)
            at, since, interval, released, issued = row
            if (seconds := (since - at).total_seconds()) > longest:
                return WaitTooLong(seconds=seconds)
            number = queue_number or issued
            if at >= since and number <= released:
                return Permit(at=at, is_limited=True)
            turn = timedelta(seconds=max(0.0, float(number) - float(released)) * interval)
            if turn.total_seconds() > MAX_WAIT_SECONDS:
                # A request far back in the queue tries halfway, at a random time.
                turn *= 0.5 + random.random() / 4  # noqa: S311 - spreads waits, keeps no secret
            until = max(at, since) + turn
            return RateLimited(model=model, until=until, queue_number=number)
        except psycopg.Error as exc:
            log.warning("Model %s: rate limit unknown: %s", model, exc)
            return None

    def on_rejected(self, model: str, permit: Permit, after: float | None) -> None:
        """Record that the provider rejected a request, and for how many seconds it wants none."""
        log.warning(
            "Model %s: its provider wants fewer requests, its calls are rate limited", model
        )
        seconds = DEFAULT_PAUSE_SECONDS if after is None else after
        pause = min(max(seconds, MIN_INTERVAL_SECONDS), MAX_RETRY_AFTER)
        _change(_ON_REJECTED, model, permit, pause)

    def on_success(self, model: str, permit: Permit) -> None:
        """Record that the model answered while it had an interval."""
        _change(_ON_SUCCESS, model, permit)


def _change(statement: str, model: str, permit: Permit, pause: float = 0.0) -> None:
    values = {
        "model": model,
        "began": permit.at,
        "pause": pause,
        "interval": min(pause, MAX_INTERVAL_SECONDS),
        "none": MIN_INTERVAL_SECONDS,
        "factor": INTERVAL_FACTOR,
    }
    try:
        with pool.pooled() as connection:
            connection.execute(statement, values)
    except psycopg.Error as exc:
        log.warning("Model %s: rate limit not stored: %s", model, exc)
