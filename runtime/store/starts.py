"""Starts a run with two statements: one reads the data the start depends on, one writes row and first entry."""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from runtime.ports.access import Expression
from runtime.store import pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import journal
from runtime.store.tables.journal import SignedEntry

_WRITE, _WRITE_KEYED = (
    f"WITH run AS ({insert} RETURNING id), first AS ({journal.APPEND}) SELECT id FROM run"
    for insert in (runs.INSERT, runs.INSERT_KEYED)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Born:
    """The id of a new run and the time of its start, by the database's clock."""

    run: UUID
    at: datetime


def peek(connection: Connection, *more: Expression) -> tuple[Born, tuple[Any, ...]]:
    """Return the id and start time of a new run, and the values of these expressions."""
    parameters: dict[str, object] = {}
    for expression in more:
        parameters |= expression.parameters
    row = pool.row(connection, _peek(tuple(one.sql for one in more)), parameters)
    assert row is not None  # a SELECT without FROM has one row
    return Born(run=row[0], at=row[1]), row[2:]


def write(connection: Connection, row: dict[str, Any], first: SignedEntry) -> bool:
    """Write a due run; the caller sends its hint. Return False if its business key is taken."""
    statement = _WRITE if row["business_key"] is None else _WRITE_KEYED
    done = pool.row(connection, statement, {**runs.inserted(row), **first.parameters()})
    return done is not None


def trigger_of(connection: Connection, run: UUID) -> UUID | None:
    """Return the trigger that started a run, None if a person did."""
    row = connection.execute(
        """
        SELECT trigger FROM runtime_occurrence WHERE run = %s AND state <> 'woken'
        ORDER BY kind = 'event', number LIMIT 1
        """,
        (run,),
    ).fetchone()
    return None if row is None else row[0]


@cache
def _peek(more: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(('signoff_uuid7(clock_timestamp()), clock_timestamp()', *more))}"
