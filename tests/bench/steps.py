"""Steps a second: journal entries of whole worker processes against bare transactions of the same machine.

A step of ours is one committed entry: a reply with the intent of its call, or a result. Replies come from a
script through the model layer, tools do nothing but return text, so what is measured is the engine and the
layer around it. Entries come to about 1 KB each, replies and results together.
"""

import os
import time

from tests.bench.desk import Desk, until_ended
from tests.bench.figures import Finding, Line, number, ratios, spread
from tests.bench.references import bare_loop
from tests.bench.site import Site

GIVEN, GOT = 50, 500  # bytes: what makes entries of 1 KB
RUNS = 8  # at once, for each worker process


def measure(site: Site, *, quick: bool) -> Finding:
    """One worker process against one bare loop, then one per core against as many loops."""
    cores = os.cpu_count() or 1
    rounds, turns = (2, 10) if quick else (4, 20)
    desk = Desk()
    lines = []
    for processes, least in ((1, 0.6), (cores, 0.4)):
        with site.workers(processes):
            _steps(desk, RUNS * processes, 3)  # until everything is imported and prepared
            pairs = [
                (
                    bare_loop(site, processes=processes, seconds=1.5),
                    _steps(desk, RUNS * processes, turns),
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
    return Finding(
        title="Steps against bare transactions",
        lines=tuple(lines),
        notes=(note,),
    )


def _steps(desk: Desk, runs: int, turns: int) -> float:
    """Entries a second of so many runs at once."""
    began = time.monotonic()
    started = [
        desk.start("walker", {"turns": turns, "given": GIVEN, "got": GOT}) for _ in range(runs)
    ]
    took = max(until_ended(desk.look, started).values()) - began
    return runs * _entries(turns) / took


def _entries(turns: int) -> int:
    """RunStarted and FrameOpened, two for each turn, and the end."""
    return 2 + 2 * turns + 1


def _size_of_entries(site: Site) -> float:
    with site.connect() as connection:
        row = connection.execute(
            """
            SELECT avg(length(body)) FROM runtime_journalentry JOIN runtime_run ON id = run_id
            WHERE agent = 'walker' AND runtime_journalentry.position > 2
                AND runtime_journalentry.position < runtime_run.position
            """
        ).fetchone()
    assert row is not None
    return float(str(row[0]))
