"""A run of 50,000 steps that goes on: how long it takes to resume, and how many rows it has."""

import os
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tests.bench.figures import Finding, Line, number, ratio
from tests.bench.sides.desk import Desk
from tests.bench.sides.driver import SUSPENDED, TRIGGER, Driver
from tests.bench.site import Site

NOTE = (
    "One worker process and one sweeper with `SIGNOFF_HISTORY_DAYS=0`; the agent is compacted each 100 turns. A resume"
    " is from the approval of one gate to the next one, measured at {gates} gates near the beginning and after the last"
    " step."
)
LIVE = """
    SELECT (SELECT count(*) FROM runtime_journalentry WHERE run_id = run.id), position, status
    FROM runtime_run run WHERE id = %s
"""
LOOK_SECONDS, WITHIN_SECONDS = 1.0, 3600.0


def measure(site: Site, *, quick: bool) -> Finding:
    first, last, gates = (200, 2_000, 5) if quick else (1_000, 50_000, 20)  # turns
    os.environ["SIGNOFF_HISTORY_DAYS"] = "0"
    with site.connect() as connection:
        told = f"NEW.status IN ('{SUSPENDED}', 'completed', 'failed', 'quarantined')"
        connection.execute(TRIGGER.format(table="runtime_run", run="NEW.id", when=told))
    driver, desk = Driver(site), Desk()
    programs = [site.worker(), site.sweeper()]
    try:
        run = desk.start("marathon", {"first": first, "last": last, "gates": gates})
        most = _until_suspended(site, run)
        early = _resumed(site, driver, desk, run, gates)
        began = time.perf_counter()
        most = max(most, _until_suspended(site, run))
        seconds = time.perf_counter() - began
        late = _resumed(site, driver, desk, run, gates)
        rows, steps, _ = _look(site, run)
    finally:
        driver.close()
        site.end(*programs)
        del os.environ["SIGNOFF_HISTORY_DAYS"]
    return Finding(
        f"A long run that goes on: {last:,} steps",
        [
            ratio("resume at the first bases / after all steps", early, late, " ms", least=0.8),
            Line("most rows of its journal at once", [most], ours=f"{number(rows)} at the end"),
            Line("steps a second", [(steps - first) / seconds], "/s"),
        ],
        NOTE.format(gates=gates),
    )


def _look(site: Site, run: UUID) -> tuple[int, int, str]:
    with site.connect() as connection:
        ((rows, position, status),) = connection.execute(LIVE, (run,)).fetchall()
    return int(str(rows)), int(str(position)), str(status)


def _until_suspended(site: Site, run: UUID) -> int:
    """Wait until the run waits at a gate and is short; return the most rows seen."""
    most, deadline = 0, time.monotonic() + WITHIN_SECONDS
    while True:
        rows, position, status = _look(site, run)
        most = max(most, rows)
        if status == SUSPENDED and rows < min(position, 1_000):
            return most
        assert status in ("queued", "running", SUSPENDED), status
        assert time.monotonic() < deadline, f"entry {position}, {rows} rows"
        time.sleep(LOOK_SECONDS)  # between two looks at the run; the deadline ends it


def _resumed(site: Site, driver: Driver, desk: Desk, run: UUID, gates: int) -> Sequence[float]:
    """Approve all gates in a row; return the milliseconds from each but the last to the next one."""
    driver.wait(run, SUSPENDED)
    times: list[float] = []
    for place in range(gates):
        form: dict[str, Any] = desk.pending([run])[run]
        began = time.perf_counter()
        desk.approve(form)
        if place < gates - 1:
            times.append(1000 * (driver.wait(run, SUSPENDED) - began))
    return times[1:]  # without the first one, for which something is imported or prepared
