"""Ended runs that are old enough by the rules of an operator: how many, and one after another."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.core.documents import external_call
from runtime.store.pool import Connection
from runtime.upkeep.retention_rules import RetentionRule

BATCH = 100  # runs of one query

# The days of the rule that applies to a run, NULL for never. retention_rules orders the rules.
DAYS = """
    (SELECT rule.days FROM unnest(%(agents)s::text[], %(statuses)s::text[], %(days)s::int[])
        WITH ORDINALITY AS rule(agent, status, days, place)
     WHERE (rule.agent IS NULL OR rule.agent = run.agent)
        AND (rule.status IS NULL OR rule.status = run.status)
     ORDER BY rule.place LIMIT 1)
"""
_OLD = f"""
    run.ended_at < clock_timestamp() - %(least)s * interval '1 day' AND run.removed_at IS NULL
    AND run.legal_hold IS NULL
    AND run.ended_at < clock_timestamp() - {DAYS} * interval '1 day'
    AND (run.agent <> '{external_call.AGENT}' OR run.ended_at < clock_timestamp() - interval '1 day'
        * CASE run.status WHEN 'failed' THEN {external_call.FAILED_KEPT_DAYS} ELSE {external_call.KEPT_DAYS} END)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRuns:
    """Ended runs of one agent and status that are old enough, and the earliest end among them."""

    agent: str
    status: str
    days: int
    runs: int
    earliest: datetime


def list_groups(
    connection: Connection, rules: tuple[RetentionRule, ...], but: str = "TRUE"
) -> list[OldRuns]:
    """Return the runs that are old enough now and meet the condition `but`, by agent and status."""
    parameters = _parameters(rules)
    if parameters is None:
        return []
    rows = connection.execute(
        f"""
        SELECT agent, status, {DAYS}, count(*), min(ended_at) FROM runtime_run run WHERE {_OLD} AND {but}
        GROUP BY agent, status ORDER BY agent, status
        """,
        parameters,
    )
    return [
        OldRuns(agent=agent, status=status, days=days, runs=count, earliest=earliest)
        for agent, status, days, count, earliest in rows.fetchall()
    ]


def yield_runs(
    connection: Connection,
    rules: tuple[RetentionRule, ...],
    stop: threading.Event,
    but: str = "TRUE",
) -> Iterator[UUID]:
    """Yield the runs of `groups`, the oldest first, until `stop`. A run that stays is not yielded again."""
    parameters = _parameters(rules)
    after: datetime | None = None
    while parameters is not None and not stop.is_set():
        rows = connection.execute(
            f"""
            SELECT id, ended_at FROM runtime_run run
            WHERE {_OLD} AND {but} AND (%(after)s::timestamptz IS NULL OR run.ended_at > %(after)s)
            ORDER BY ended_at LIMIT %(batch)s
            """,
            {**parameters, "after": after, "batch": BATCH},
        )
        batch = rows.fetchall()
        for run, _ in batch:
            if stop.is_set():
                return
            yield run
        if len(batch) < BATCH:
            return
        after = batch[-1][1]


def _parameters(rules: tuple[RetentionRule, ...]) -> dict[str, object] | None:
    """Return the parameters of the rules; None if no rule names days."""
    days = [rule.days for rule in rules if rule.days is not None]
    if not days:
        return None
    return {
        "agents": [rule.agent for rule in rules],
        "statuses": [rule.status for rule in rules],
        "days": [rule.days for rule in rules],
        "least": min(days),
    }
