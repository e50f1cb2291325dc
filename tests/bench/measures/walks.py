"""Long runs: the time of their steps, whether the last ones take longer, bytes, and resuming.

A step is a reply of the model with 1 KB of arguments and its result. The baseline commits each in a transaction of its
own; ours commits a result with the reply of the script that follows. After the last step the run waits at a gate;
resuming it loads the whole run.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.figures import Line, median, ratio
from tests.bench.rounds import Contender
from tests.bench.sides.driver import Driver
from tests.bench.site import Site

STEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """One run: milliseconds to its gate and from its approval to its end, of its first and last steps; bytes."""

    time: float
    resumed: float
    first: float
    last: float
    bytes: float


def measure(site: Site, driver: Driver, both: Sequence[Contender], rounds: int) -> list[Line]:
    """Take so many long runs of both sides in turn."""
    taken = [[_walk(site, driver, one) for one in both] for _ in range(rounds)]
    theirs, ours = [one for one, _ in taken], [one for _, one in taken]

    def line(what: str, which: Callable[[Walked], float], unit: str, most: float) -> Line:
        mine, others = [which(one) for one in ours], [which(one) for one in theirs]
        return ratio(what, mine, others, unit, most=most)

    first = median([one.first for one in ours], " ms")
    own = median([one.last / one.first for one in theirs], " ×")
    return [
        line(f"{STEPS:,} steps: time", lambda one: one.time, " ms", 1.0),
        Line(
            "  a step of ours at the end to one at the start",
            [one.last / one.first for one in ours],
            " ×",
            most=1.1,
            ours=median([one.last for one in ours], " ms"),
            reference=f"{first}; the baseline's own {own}",
        ),
        line("  bytes", lambda one: one.bytes / 1024, " KB", 0.95),
        line("  approve → finished behind them", lambda one: one.resumed, " ms", 2.0),
    ]


def _walk(site: Site, driver: Driver, one: Contender) -> Walked:
    name = one.side.name
    before = site.kept(name)
    started = driver.start(one.side, "walk", [{"steps": STEPS}], 1)
    finished = driver.finish(one.side, one.side.pending(started.runs), 1)
    return Walked(
        time=started.times[0],
        resumed=finished.times[0],
        bytes=site.kept(name) - before,
        **json.loads(one.side.output(started.runs[0])),
    )
