"""The cost of each guarantee: flows of `engine` with all of them, and with one of them left out, in turn."""

from collections.abc import Callable
from statistics import median

from tests.bench.figures import Finding, Line, number
from tests.bench.rounds import Contender, Cost, take
from tests.bench.sides.desk import Desk
from tests.bench.sides.driver import AT_ONCE, Driver, driving
from tests.bench.sides.without import GUARANTEES, VARIABLE, left_out
from tests.bench.site import Site

NOTE = (
    "Of one worker process that is started anew for each round, of {flows} flows, {at_once} at once. What a guarantee"
    " costs is the difference to the neighbouring round with all of them. A difference below its spread is noise."
)


def measure(site: Site, *, quick: bool) -> Finding:
    rounds, flows = (3, 80) if quick else (10, 200)
    lines = []
    with driving(site) as driver:
        desk = Desk()
        taken: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in GUARANTEES}
        for _ in range(rounds):
            for name, pairs in taken.items():
                whole = _costs(site, driver, desk, flows, "")
                pairs.append((whole, _costs(site, driver, desk, flows, name)))
    for name, pairs in taken.items():
        lines.append(_line(f"{name}: CPU", lambda cost: 1000 * cost.cpu, " ms", pairs))
        lines.append(_line(f"{name}: WAL", lambda cost: cost.wal / 1024, " KB", pairs))
    note = NOTE.format(flows=flows, at_once=AT_ONCE)
    return Finding("What each guarantee costs", lines, note)


def _costs(site: Site, driver: Driver, desk: Desk, flows: int, without: str) -> Cost:
    """Return the costs of one flow, without the named guarantee if one is named."""
    worker = site.worker("tests.bench.sides.without", **{VARIABLE: without})
    contender = Contender(site, driver, desk, [worker])
    with left_out(without):
        take(driver, contender, AT_ONCE, AT_ONCE)  # until everything is imported and prepared
        found = take(driver, contender, flows, AT_ONCE).cost
    site.end(worker)
    return found


def _line(
    what: str, which: Callable[[Cost], float], unit: str, pairs: list[tuple[Cost, Cost]]
) -> Line:
    whole = median(which(one) for one, _ in pairs)
    less = [which(one) - which(other) for one, other in pairs]
    share = f"{number(100 * median(less) / whole)} % of {number(whole)}{unit}"
    return Line(f"{what} of a flow", less, unit, ours=share)
