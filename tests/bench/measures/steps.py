"""Steps a second: journal entries of whole worker processes against bare transactions of the same machine.

A step of ours is one committed entry: a reply with the intent of its call, or a result. Replies come from a
function through the model layer, and tools only return text, so this measures the engine and the layer around it.
Entries are about 1 KB each, replies and results together. They are counted between two samples: the first that finds
every run active, and the last that finds none ended.
"""

import os
import time
from collections.abc import Iterable
from uuid import UUID

from django.db import connection

from tests.bench.figures import Finding, Line, number, ratios, spread
from tests.bench.measures.references import bare_loop
from tests.bench.sides.desk import TIMEOUT_SECONDS, Desk, until_ended
from tests.support.site import Site

GIVEN, GOT = 50, 500  # bytes: what makes entries of 1 KB
RUNS = 8  # at once, for each worker process
TURNS = 100  # of each: the first is not to be over before the last is at work
LOOK = 0.05  # seconds between two looks, which share the machine with the workers
BEGUN = 3  # entries of a run that is at work: it has begun, and its model has replied once


def measure(site: Site, *, quick: bool) -> Finding:
    """One worker process against one bare loop, then one per core against as many loops."""
    cores = os.cpu_count() or 1
    rounds = 2 if quick else 8
    desk = Desk()
    lines = []
    for processes, least in ((1, 0.6), (cores, 0.4)):
        with site.workers(processes):
            # Until everything is imported and prepared.
            until_ended(desk.look, _started(desk, RUNS * processes, 3))
            pairs = [
                (
                    bare_loop(site, processes=processes, seconds=1.5),
                    _steps(desk, RUNS * processes, TURNS),
                )
                for _ in range(rounds)
            ]
        theirs, ours = [one for one, _ in pairs], [one for _, one in pairs]
        name = "one worker process" if processes == 1 else f"{processes} worker processes"
        lines.append(
            Line(
                what=f"steps a second of {name}",
                value=ratios(ours, theirs),
                unit=" ×",
                least=least,
                ours=f"{number(spread(ours).median)}/s",
                reference=f"{number(spread(theirs).median)}/s",
            )
        )
    note = (
        f"{RUNS} runs at once for each worker process; an entry has {number(_size_of_entries(site))} bytes"
        " in the mean. The reference is as many bare loops as there are worker processes."
    )
    return Finding(title="Steps against bare transactions", lines=tuple(lines), notes=(note,))


def _steps(desk: Desk, runs: int, turns: int) -> float:
    """Entries a second of so many runs at once, as long as all of them are at work."""
    started = _started(desk, runs, turns)
    looks = list(_looks(started, last=2 * turns))
    until_ended(desk.look, started)
    assert len(looks) > 1, "the runs were too short to be counted"
    (began_at, before), (ended_at, after) = looks[0], looks[-1]
    return (after - before) / (ended_at - began_at)


def _started(desk: Desk, runs: int, turns: int) -> list[UUID]:
    given = {"turns": turns, "given": GIVEN, "got": GOT}
    return [desk.start("walker", given) for _ in range(runs)]


def _looks(runs: list[UUID], *, last: int) -> Iterable[tuple[float, int]]:
    """Sample the time and number of entries while all runs are active, until one is past entry `last`."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        assert time.monotonic() < deadline, "runs do not go on"
        at, positions = _positions(runs)
        if max(positions) > last:
            return
        if min(positions) >= BEGUN:
            yield at, sum(positions)
        time.sleep(LOOK)


def _positions(runs: list[UUID]) -> tuple[float, list[int]]:
    """Seconds of the database's clock, and how many entries each run has."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM clock_timestamp()), array_agg(position)"
            " FROM runtime_run WHERE id = ANY(%s)",
            [runs],
        )
        at, positions = cursor.fetchone()
    return float(at), list(positions)


def _size_of_entries(site: Site) -> float:
    with site.connect() as connection:
        row = connection.execute(
            """
            SELECT avg(length(body) + coalesce(length(packed), 0))
            FROM runtime_journalentry JOIN runtime_run ON id = run_id
            WHERE agent = 'walker' AND runtime_journalentry.position > 2
                AND runtime_journalentry.position < runtime_run.position
            """
        ).fetchone()
    assert row is not None
    return float(str(row[0]))
