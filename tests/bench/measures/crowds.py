"""The bytes of flows that wait and of those that have ended, of each side."""

from collections.abc import Iterator, Sequence

from tests.bench.figures import Line, number, ratio
from tests.bench.rounds import Contender
from tests.bench.sides.driver import AT_ONCE, Driver
from tests.bench.sides.workload import newcomers
from tests.bench.site import Site


def sizes(site: Site, driver: Driver, both: Sequence[Contender], flows: int) -> list[Line]:
    """Bytes of a flow that waits, and of one that has ended; of so many, while Postgres tidies nothing up."""
    waits, ended = [], []
    for side in (one.side for one in both):
        before = site.kept(side.name)
        started = driver.start(side, "onboard", newcomers(flows), AT_ONCE)
        waits.append((site.kept(side.name) - before) / flows)
        driver.finish(side, side.pending(started.runs), AT_ONCE)
        ended.append((site.kept(side.name) - before) / flows)
    return [_of_bytes("a suspended flow", *waits, most=4), _of_bytes("a finished flow", *ended)]


def waiting(site: Site, driver: Driver, both: Sequence[Contender], flows: int) -> Iterator[Line]:
    """Let so many flows of both sides wait."""
    sizes, rates = [], []
    for side in (one.side for one in both):
        before = site.kept(side.name)
        started = driver.start(side, "onboard", newcomers(flows), AT_ONCE)
        sizes.append((site.kept(side.name) - before) / flows)
        rates.append([flows / started.seconds])
    theirs, ours = rates
    yield ratio(f"{flows:,} flows to their gates", ours, theirs, "/s")
    yield _of_bytes("each of many that wait", *sizes, most=4)


def _of_bytes(what: str, theirs: float, ours: float, **goal: float) -> Line:
    return Line(
        f"bytes of {what}",
        [ours / 1024],
        " KB",
        ours=f"{number(ours / theirs)} × the baseline's",
        reference=f"{number(theirs / 1024)} KB",
        **goal,
    )
