"""The cost of each guarantee: flows of `engine` with all of them, and with one of them left out, in turn."""

from collections.abc import Callable

from tests.bench.figures import Finding, Line, number, spread
from tests.bench.meters import Cost, Meters
from tests.bench.rounds import Contender, take
from tests.bench.sides.desk import Desk
from tests.bench.sides.driver import (
    AT_ONCE,
    Driver,
    Ours,
    driving,
)
from tests.bench.sides.without import GUARANTEES, left_out
from tests.support.site import Site

NOTE = (
    "Of one worker process that is started anew for each round, of {flows} flows, {at_once} at once. What a guarantee"
    " costs is the difference to the neighbouring round with all of them. A difference below its spread is noise."
)
FIGURES: tuple[tuple[str, Callable[[Cost], float], str], ...] = (
    ("CPU", lambda cost: 1000 * cost.cpu, " ms"),
    ("WAL", lambda cost: cost.wal / 1024, " KB"),
)


def measure(site: Site, *, quick: bool) -> Finding:
    """The difference that each makes to a flow's CPU, of everything, and to its WAL."""
    rounds, flows = (3, 80) if quick else (10, 200)
    lines = []
    with driving(site) as driver, site.untidied():
        desk, sweeper = Desk(), site.sweeper()
        taken: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in GUARANTEES}
        for _ in range(rounds):
            for name, pairs in taken.items():
                pairs.append(
                    (_costs(site, driver, desk, flows, ""), _costs(site, driver, desk, flows, name))
                )
        site.end(sweeper)
    for name, pairs in taken.items():
        lines += [_line(name, figure, which, unit, pairs) for figure, which, unit in FIGURES]
    return Finding(
        title="What each guarantee costs",
        lines=tuple(lines),
        notes=(NOTE.format(flows=flows, at_once=AT_ONCE),),
    )


def _costs(site: Site, driver: Driver, desk: Desk, flows: int, without: str) -> Cost:
    """Return the costs of one flow, without the named guarantee if one is named."""
    worker = site.worker_without(without) if without else site.worker()
    meters = Meters(site, driver, [worker])
    contender = Contender(side=Ours(desk), workers=[worker], meters=meters, idle=Cost())
    with left_out(without):
        take(driver, contender, AT_ONCE, AT_ONCE)  # until everything is imported and prepared
        found = take(driver, contender, flows, AT_ONCE).cost
    site.end(worker)
    return found


def _line(
    name: str,
    figure: str,
    which: Callable[[Cost], float],
    unit: str,
    pairs: list[tuple[Cost, Cost]],
) -> Line:
    whole = [which(one) for one, _ in pairs]
    less = [which(one) - which(other) for one, other in pairs]
    share = 100 * spread(less).median / spread(whole).median
    return Line(
        what=f"{name}: {figure} of a flow",
        value=spread(less),
        unit=unit,
        ours=f"{number(share)} % of {number(spread(whole).median)}{unit}",
    )
