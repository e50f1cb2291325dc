"""Reads the stored runs of a whole application beside it, at almost no cost to it."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, LiteralString

import psutil
import psycopg

from config.local.http_client import Unreachable
from runtime.core.documents.compression import plain_text
from runtime.store.tables.journal import unpacked
from tests.support import processes
from tests.support.stack import Stack

ENDS = ["completed", "failed", "cancelled", "quarantined"]
PAGE = 500  # runs whose journals are read at once

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a journal: when it was made, and its events as they are stored."""

    at: datetime
    events: list[dict[str, Any]]


class Records:
    """Reads on a connection that is made anew when it is cut. Every query raises Unreachable without Postgres."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None

    def ended(self, runs: Iterable[str]) -> set[str]:
        """Return those of the runs that have ended."""
        rows = self._ask(
            "SELECT id FROM runtime_run WHERE id = ANY(%s) AND status = ANY(%s)", (list(runs), ENDS)
        )
        return {str(run) for (run,) in rows}

    def statuses(self) -> dict[str, str]:
        """Return the status of every run."""
        rows = self._ask("SELECT id, status FROM runtime_run")
        return {str(run): status for run, status in rows}

    def decided(self) -> dict[str, datetime]:
        """Return the time of each gate's decision by its id."""
        query: LiteralString = (
            "SELECT id, decided_at FROM runtime_gate WHERE decided_at IS NOT NULL"
        )
        return {str(gate): at for gate, at in self._ask(query)}

    def in_doubt_gates(self) -> int:
        """Count the in-doubt gates of all runs."""
        ((number,),) = self._ask("SELECT count(*) FROM runtime_gate WHERE kind = 'in_doubt'")
        return int(number)

    def journals(self, runs: Iterable[str]) -> Iterator[tuple[str, list[Entry]]]:
        """Every run with the entries of its journal in order."""
        left = sorted(runs)
        while left:
            page, left = left[:PAGE], left[PAGE:]
            rows = self._ask(
                "SELECT run_id, position, body, mac, key_id, packed FROM runtime_journalentry"
                " WHERE run_id = ANY(%s::uuid[])"
                " ORDER BY run_id, position",
                (page,),
            )
            for run, entries in groupby(rows, key=lambda row: row[0]):
                yield str(run), [_entry(unpacked(*row)[1]) for _, *row in entries]

    def _ask(self, query: LiteralString, given: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection.execute(query, given).fetchall()
        except (psycopg.OperationalError, psutil.Error, LookupError) as error:
            self.close()
            raise Unreachable(str(error)) from error

    def _connect(self) -> Connection:
        """Where the worker finds it, which is elsewhere after each start. Raises LookupError if there is no worker."""
        address = processes.of(self._stack, "worker").process.environ()["DATABASE_URL"]
        return psycopg.connect(address, autocommit=True, connect_timeout=2)


def _entry(body: str) -> Entry:
    stored = json.loads(plain_text(body))
    return Entry(at=datetime.fromisoformat(stored["at"]), events=stored["events"])
