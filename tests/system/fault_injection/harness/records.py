"""Reads the stored runs of a whole application beside it, at almost no cost to it."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any, LiteralString

import psycopg

from config.local.http_client import Unreachable
from runtime.core.documents.compression import plain_text
from runtime.store.tables.journal import unpacked
from tests.support.stack import Stack

PAGE = 500  # runs whose journals are read at once


def ask(stack: Stack, query: LiteralString, *given: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query. Raise Unreachable without Postgres."""
    try:
        with psycopg.connect(stack.superuser_url, connect_timeout=2) as connection:
            return connection.execute(query, given).fetchall()
    except (psycopg.OperationalError, OSError) as error:
        raise Unreachable(str(error)) from error


def journals(
    stack: Stack, runs: Iterable[str]
) -> Iterator[tuple[str, list[tuple[datetime, dict[str, Any]]]]]:
    """Yield every run with the events of its journal in order, and when each was written."""
    left = sorted(runs)
    while left:
        page, left = left[:PAGE], left[PAGE:]
        rows = ask(
            stack,
            "SELECT run_id, position, body, mac, key_id, packed FROM runtime_journalentry"
            " WHERE run_id = ANY(%s::uuid[]) ORDER BY run_id, position",
            page,
        )
        for run, entries in groupby(rows, key=lambda row: row[0]):
            stored = [json.loads(plain_text(unpacked(*row)[1])) for _, *row in entries]
            yield (
                str(run),
                [
                    (datetime.fromisoformat(entry["at"]), event)
                    for entry in stored
                    for event in entry["events"]
                ],
            )
