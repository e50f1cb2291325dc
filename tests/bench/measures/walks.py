"""Long runs: the time of their steps, whether the last ones take longer, the stored bytes, and the cost of resuming.

A step is a reply of the model with 1 KB of arguments and its result, each committed in its own transaction before the
next. After the last step the run waits at a gate; resuming it loads the whole run.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.figures import Line, number, spread
from tests.bench.measures.sizes import kept
from tests.bench.meters import Cost
from tests.bench.rounds import Contender, line
from tests.bench.sides.driver import Driver
from tests.support.site import Site

GOALS = 1000  # the steps of the run that has goals
OF_A_STEP: tuple[tuple[str, Callable[[Cost], float], str], ...] = (
    ("CPU of a step, workers", lambda cost: 1000 * cost.workers, " ms"),
    ("CPU of a step, with Postgres and the broker", lambda cost: 1000 * cost.cpu, " ms"),
    ("statements of a step", lambda cost: cost.statements, ""),
    ("WAL of a step", lambda cost: cost.wal / 1024, " KB"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """One run: milliseconds to its gate and from its approval to its end, of its first and last steps; bytes.

    `cost` is of one step.
    """

    time: float
    resumed: float
    first: float
    last: float
    bytes: float
    cost: Cost


def measure(
    site: Site, driver: Driver, both: Sequence[Contender], steps: int, rounds: int
) -> list[Line]:
    """The lines of runs of so many steps, of both sides in turn."""
    baseline, ours = (
        list(found)
        for found in zip(
            *([_walk(site, driver, one, steps) for one in both] for _ in range(rounds)), strict=True
        )
    )
    goals = steps == GOALS
    growth = [one.last / one.first for one in ours]
    return [
        line(
            f"{steps:,} steps: time",
            [one.time for one in ours],
            [one.time for one in baseline],
            " ms",
            **({"most": 1.0} if goals else {}),
        ),
        Line(
            what="  a step of ours at the end to one at the start",
            value=spread(growth),
            unit=" ×",
            most=1.1 if goals else None,
            ours=f"{number(spread([one.last for one in ours]).median)} ms",
            reference=f"{number(spread([one.first for one in ours]).median)} ms; the baseline's own"
            f" {number(spread([one.last / one.first for one in baseline]).median)} ×",
        ),
        line(
            "  bytes",
            [one.bytes / 1024 for one in ours],
            [one.bytes / 1024 for one in baseline],
            " KB",
            **({"most": 1.35} if goals else {}),
        ),
        *(
            line(
                f"  {what}",
                [which(one.cost) for one in ours],
                [which(one.cost) for one in baseline],
                unit,
            )
            for what, which, unit in OF_A_STEP
        ),
        line(
            "  approve → finished behind them",
            [one.resumed for one in ours],
            [one.resumed for one in baseline],
            " ms",
            **({"most": 2.0} if goals else {}),
        ),
    ]


def _walk(site: Site, driver: Driver, one: Contender, steps: int) -> Walked:
    name = one.side.name
    before, meters = kept(site, name), one.meters.read()
    started = driver.start(one.side, "walk", [{"steps": steps}], 1)
    cost = one.meters.read() - meters
    finished = driver.finish(one.side, one.side.pending(started.runs), 1)
    said = json.loads(one.side.output(started.runs[0]))
    return Walked(
        time=started.times[0],
        resumed=finished.times[0],
        first=said["first"],
        last=said["last"],
        bytes=kept(site, name) - before,
        cost=cost.less(one.idle) / steps,
    )
