"""Reads the stored runs of a whole application beside it, at almost no cost to it."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any

from runtime.core.documents.codec import decode_stored_text
from runtime.store.tables.journal import unpack_row
from tests.support.stack import Stack

# Since when each run had no worker, and when a sweeper noticed it
LOSSES = """
    SELECT run_id::text, coalesce(beat_at, at), at FROM runtime_lostlease
    LEFT JOIN runtime_workerprocess ON runtime_workerprocess.id = runtime_lostlease.worker
    WHERE run_id = ANY(%s::uuid[])
"""
PAGE = 500  # runs whose journals are read at once


def journals(
    stack: Stack, runs: Iterable[str]
) -> Iterator[tuple[str, list[tuple[datetime, dict[str, Any]]]]]:
    """Yield every run with the events of its journal in order, and when each was written."""
    left = sorted(runs)
    while left:
        page, left = left[:PAGE], left[PAGE:]
        rows = stack.rows(
            "SELECT run_id, position, body, mac, key_id, packed FROM runtime_journalentry"
            " WHERE run_id = ANY(%s::uuid[]) ORDER BY run_id, position",
            page,
        )
        for run, entries in groupby(rows, key=lambda row: row[0]):
            stored = [json.loads(decode_stored_text(unpack_row(*row)[1])) for _, *row in entries]
            times = [datetime.fromisoformat(entry["at"]) for entry in stored]
            told = zip(times, stored, strict=True)
            yield str(run), [(at, event) for at, entry in told for event in entry["events"]]


def seconds_until(stack: Stack, runs: Iterable[str], *types: str) -> list[float]:
    """Return the seconds from each loss of a worker until its run's next event, or next one of these types."""
    chosen = list(runs)
    losses = stack.rows(LOSSES, chosen)
    times = {
        run: [at for at, event in told if not types or event["type"] in types]
        for run, told in journals(stack, chosen)
    }
    waits = []
    for run, since, noticed in losses:
        later = [at for at in times.get(run, ()) if at > noticed]
        waits += [(later[0] - since).total_seconds()] if later else []
    return waits
