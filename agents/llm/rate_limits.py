"""The rate_limits' keeper: one row per provider that asked for fewer requests, obeyed by all workers together.

A provider that answers 429 or 529, or names a time, is left alone until then. After that requests
are let through one by one: each takes a number, and the numbers that may go grow by one in each
`gap`. An answer makes the gap shorter, until it is gone; being asked again for fewer doubles it.
Times are the database's. Who has to wait holds neither a thread nor a connection meanwhile.
"""

import logging
import random
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from runtime.store import pool

log = logging.getLogger(__name__)

PAUSE = 1.0  # seconds, of a provider that names none
LONGEST_PAUSE = 600.0
EASE = 0.85  # what an answer makes of the gap
GONE = 0.02  # seconds: a gap below this is none
PATIENCE = 5.0  # seconds, after which whoever waits long looks again: the gap may be shorter

# How many numbers may go at this moment: it stands still until `since`.
_MAY_GO = """(b.served + greatest(0, extract(epoch FROM clock_timestamp() - b.since)) / b.gap)"""

_TAKE = f"""
    UPDATE agents_brake AS b SET issued = CASE WHEN %(ticket)s > 0 THEN b.issued
        ELSE greatest(b.issued + 1, floor({_MAY_GO})::bigint) END
    WHERE b.provider = %(provider)s AND b.gap > 0
    RETURNING clock_timestamp(), b.since, b.gap, {_MAY_GO}, b.issued
"""

# Requests that were under way together are refused together: only the first doubles the gap.
_HIT = f"""
    INSERT INTO agents_brake AS b (provider, gap, served, since, issued, hit_at)
    VALUES (%(provider)s, %(pause)s, 1, clock_timestamp() + %(pause)s * interval '1 second', 0,
        clock_timestamp())
    ON CONFLICT (provider) DO UPDATE SET
        gap = CASE WHEN b.gap = 0 THEN %(pause)s WHEN b.hit_at >= %(began)s THEN b.gap
            ELSE least(2 * b.gap, 2 * %(pause)s) END,
        served = CASE WHEN b.gap = 0 THEN b.issued + 1 ELSE {_MAY_GO} END,
        since = greatest(b.since, clock_timestamp() + %(pause)s * interval '1 second'),
        hit_at = CASE WHEN b.hit_at >= %(began)s THEN b.hit_at ELSE clock_timestamp() END
"""

_EASE = f"""
    UPDATE agents_brake AS b SET served = {_MAY_GO},
        since = greatest(b.since, clock_timestamp()),
        gap = CASE WHEN b.gap * %(ease)s < %(gone)s THEN 0 ELSE b.gap * %(ease)s END
    WHERE b.provider = %(provider)s AND b.gap > 0 AND b.hit_at < %(began)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """The request may go, as of this database time, at a provider that is `braked` or not."""

    at: datetime
    braked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The request has a number, and may come back with it at that time."""

    until: datetime
    ticket: int


class RateLimits:
    """What the gateway asks before a request of a provider, and tells after it."""

    def acquire(self, provider: str, ticket: int) -> Go | Wait | None:
        """Whether a request may go now; `ticket` is the number that it was given before, 0 for none.

        None when Postgres cannot be asked: then nobody waits for anything.
        """
        try:
            return _acquire(provider, ticket)
        except psycopg.Error as exc:
            log.warning("whether %s is braked is not known: %s", provider, exc)
            return None

    def on_rejected(self, provider: str, go: Go, after: float | None) -> None:
        """The provider wants fewer requests, and for so many seconds none if it said so."""
        pause = PAUSE if after is None else min(max(after, GONE), LONGEST_PAUSE)
        log.warning("%s is braked: it wants fewer requests", provider)
        _change(_HIT, {"provider": provider, "pause": pause, "began": go.at})

    def on_success(self, provider: str, go: Go) -> None:
        """The provider answered a request that it could have refused."""
        values = {"provider": provider, "began": go.at, "ease": EASE, "gone": GONE}
        _change(_EASE, values)


def _acquire(provider: str, ticket: int) -> Go | Wait:
    with pool.pooled() as connection:
        known = connection.execute(
            "SELECT clock_timestamp(), (SELECT gap FROM agents_brake WHERE provider = %s)",
            (provider,),
            prepare=True,
        ).fetchone()
        assert known is not None  # a SELECT without FROM has one row
        if not known[1]:
            return Go(at=known[0], braked=False)
        row = connection.execute(_TAKE, {"provider": provider, "ticket": ticket}).fetchone()
    if row is None:
        return Go(at=known[0], braked=False)
    at, since, gap, may_go, issued = row
    number = ticket or issued
    if at >= since and number <= may_go:
        return Go(at=at, braked=True)
    return Wait(until=_come_back(at, since, gap, float(number) - float(may_go)), ticket=number)


def _come_back(at: datetime, since: datetime, gap: float, ahead: float) -> datetime:
    """When the number's turn is as things are now; whoever is far back looks again halfway, not all at once."""
    turn = timedelta(seconds=max(0.0, ahead) * gap)
    if turn.total_seconds() > PATIENCE:
        turn *= 0.5 + random.random() / 4  # noqa: S311 - spreads waits, keeps no secret
    return max(at, since) + turn


def _change(statement: str, values: dict[str, object]) -> None:
    try:
        with pool.pooled() as connection:
            connection.execute(statement, values)
    except psycopg.Error as exc:
        log.warning("the brake of %s was not set: %s", values["provider"], exc)
