"""Long runs: the time of their steps, whether the last ones take longer, the stored bytes, and the cost of resuming.

A step is a reply of the model with 1 KB of arguments and its result, each committed in its own transaction before the
next. After the last step the run waits at a gate; resuming it loads the whole run.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.figures import Line, median, ratio
from tests.bench.meters import Cost
from tests.bench.rounds import Contender
from tests.bench.sides.driver import Driver
from tests.bench.site import Site

GOALS = 1000  # the steps of the run that has goals


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
    """The lines of runs of so many steps, of both sides in turn; only the times of those without goals."""
    taken = [[_walk(site, driver, one, steps) for one in both] for _ in range(rounds)]
    theirs, ours = [one for one, _ in taken], [one for _, one in taken]

    def line(
        what: str, which: Callable[[Walked], float], unit: str, most: float | None = None
    ) -> Line:
        goal = {"most": most} if most and steps == GOALS else {}
        return ratio(
            what, [which(one) for one in ours], [which(one) for one in theirs], unit, **goal
        )

    time = line(f"{steps:,} steps: time", lambda one: one.time, " ms", 1.0)
    resumed = line("  approve → finished behind them", lambda one: one.resumed, " ms", 2.0)
    if steps != GOALS:
        return [time, resumed]
    first = median([one.first for one in ours], " ms")
    own = median([one.last / one.first for one in theirs], " ×")
    return [
        time,
        Line(
            "  a step of ours at the end to one at the start",
            [one.last / one.first for one in ours],
            " ×",
            most=1.1,
            ours=median([one.last for one in ours], " ms"),
            reference=f"{first}; the baseline's own {own}",
        ),
        line("  bytes", lambda one: one.bytes / 1024, " KB", 1.35),
        line("  CPU of a step, workers", lambda one: 1000 * one.cost.workers, " ms"),
        line(
            "  CPU of a step, with Postgres and the broker", lambda one: 1000 * one.cost.cpu, " ms"
        ),
        line("  statements of a step", lambda one: one.cost.statements, ""),
        line("  WAL of a step", lambda one: one.cost.wal / 1024, " KB"),
        resumed,
    ]


def _walk(site: Site, driver: Driver, one: Contender, steps: int) -> Walked:
    name = one.side.name
    before, meters = site.kept(name), one.meters.read()
    started = driver.start(one.side, "walk", [{"steps": steps}], 1)
    cost = one.meters.read() - meters
    finished = driver.finish(one.side, one.side.pending(started.runs), 1)
    return Walked(
        time=started.times[0],
        resumed=finished.times[0],
        bytes=site.kept(name) - before,
        cost=cost.less(one.idle) / steps,
        **json.loads(one.side.output(started.runs[0])),
    )
