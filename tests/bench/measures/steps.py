"""Steps a second: journal entries of whole worker processes against bare transactions of the same machine.

A step of ours is one committed entry: a result, and the reply with the intent of the next call. Replies come from a
function through the model layer, and tools only return text, so this measures the engine and the layer around it.
Entries are about 1 KB each, replies and results together. They are counted between two samples: the first that finds
every run active, and the last that finds none ended.
"""

import os
import time
from collections.abc import Iterable
from uuid import UUID

from tests.bench.figures import Finding, number, ratio
from tests.bench.sides.bare_loop import bare_loop
from tests.bench.sides.desk import TIMEOUT_SECONDS, Desk
from tests.bench.site import Site

GIVEN, GOT = 50, 500  # bytes: what makes entries of 1 KB
RUNS = 8  # at once, for each worker process
TURNS = 100  # of each: the first is not to be over before the last is at work
LOOK = 0.05  # seconds between two looks, which share the machine with the workers
BEGUN = 3  # entries of a run that is at work: it has begun, and its model has replied once
POSITIONS = """
    SELECT extract(epoch FROM clock_timestamp())::float, array_agg(position)
    FROM runtime_run WHERE id = ANY(%s)
"""
SIZES = """
    SELECT avg(length(body) + coalesce(length(packed), 0))::float
    FROM runtime_journalentry JOIN runtime_run ON id = run_id
    WHERE agent = 'walker' AND runtime_journalentry.position > 2
        AND runtime_journalentry.position < runtime_run.position
"""


def measure(site: Site, *, quick: bool) -> Finding:
    """One worker process against one bare loop, then one per core against as many loops."""
    desk, lines = Desk(), []
    for count, least in ((1, 0.6), (os.cpu_count() or 1, 0.4)):
        ours, theirs = [], []
        workers = [site.worker() for _ in range(count)]
        desk.until_ended(_started(desk, RUNS * count, 3))  # until everything is prepared
        for _ in range(2 if quick else 8):
            theirs.append(bare_loop(site, processes=count, seconds=1.5))
            ours.append(_steps(site, desk, RUNS * count, TURNS))
        site.end(*workers)
        name = "one worker process" if count == 1 else f"{count} worker processes"
        lines.append(ratio(f"steps a second of {name}", ours, theirs, "/s", least=least))
    with site.connect() as connection:
        ((size,),) = connection.execute(SIZES).fetchall()
    note = (
        f"{RUNS} runs at once for each worker process; an entry has {number(float(str(size)))} bytes"
        " in the mean. The reference is as many bare loops as there are worker processes."
    )
    return Finding("Steps against bare transactions", lines, note)


def _steps(site: Site, desk: Desk, runs: int, turns: int) -> float:
    """Entries a second of so many runs at once, as long as all of them are at work."""
    started = _started(desk, runs, turns)
    looks = list(_looks(site, started, last=turns))
    desk.until_ended(started)
    assert len(looks) > 1, "the runs were too short to be counted"
    (began_at, before), (ended_at, after) = looks[0], looks[-1]
    return (after - before) / (ended_at - began_at)


def _started(desk: Desk, runs: int, turns: int) -> list[UUID]:
    given = {"turns": turns, "given": GIVEN, "got": GOT}
    return [desk.start("walker", given) for _ in range(runs)]


def _looks(site: Site, runs: list[UUID], *, last: int) -> Iterable[tuple[float, int]]:
    """Sample the database's time and the number of entries while all runs are active, until one is past `last`."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with site.connect() as connection:
        while True:
            assert time.monotonic() < deadline, "runs do not go on"
            ((at, positions),) = connection.execute(POSITIONS, (runs,)).fetchall()
            assert isinstance(at, float)
            assert isinstance(positions, list)
            if max(positions) > last:
                return
            if min(positions) >= BEGUN:
                yield at, sum(positions)
            time.sleep(LOOK)  # between two looks at the entries that the workers write
