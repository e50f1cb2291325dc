"""Flows that wait: bytes of each, how fast many come there, what workers keep of them, and a decision beside them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench.figures import Line, median, number, ratio
from tests.bench.rounds import Contender, Pair, pairs
from tests.bench.sides.driver import AT_ONCE, Driver
from tests.bench.sides.workload import newcomers
from tests.bench.site import Program, Site

REST = 10.0  # seconds in which nothing happens


def sizes(site: Site, driver: Driver, both: Sequence[Contender], flows: int) -> list[Line]:
    """Bytes of a flow that waits, and of one that has ended; of so many, while Postgres tidies nothing up."""
    waits, ended = [], []
    for side in (one.side for one in both):
        before = site.kept(side.name)
        started = driver.start(side, "onboard", newcomers(flows), AT_ONCE)
        waits.append((site.kept(side.name) - before) / flows)
        driver.finish(side, side.pending(started.runs), AT_ONCE)
        ended.append((site.kept(side.name) - before) / flows)
    return [_of_bytes("a suspended flow", *waits, most=5), _of_bytes("a finished flow", *ended)]


@dataclass(frozen=True, slots=True)
class Crowd:
    """A number of suspended flows of one side: flows a second, bytes of each, MB of a worker before and after."""

    rate: float
    bytes: float
    before: float
    after: float


def measure(
    site: Site, driver: Driver, both: Sequence[Contender], flows: int, alone: Sequence[Pair]
) -> Iterator[Line]:
    """Both sides with so many suspended flows; `alone` are rounds of one at a time that were taken without them."""
    theirs, ours = (_gather(site, driver, contender, flows) for contender in both)
    beside = pairs(driver, both, len(alone), len(alone[0][0].started.runs), 1)
    rest = both[1].rest(REST)

    def growth(side: int) -> list[float]:
        """Times beside the crowd to those without it."""
        taken = zip(beside, alone, strict=True)
        return [pair[side].to_finish(50) / other[side].to_finish(50) for pair, other in taken]

    yield ratio(f"{flows:,} flows to their gates", [ours.rate], [theirs.rate], "/s")
    yield Line(
        f"approve → finished, p50 alone, beside {flows:,} that wait to without",
        growth(1),
        " ×",
        ours=median([one.to_finish(50) for _, one in beside], " ms"),
        reference=median(growth(0), " × of the baseline's own"),
    )
    yield Line(
        f"memory of a worker with {flows:,} that wait to before",
        [ours.after / ours.before],
        " ×",
        ours=f"{number(ours.after)} MB",
        reference=f"{number(theirs.after)} MB, of all of the baseline's processes",
    )
    yield _of_bytes("each of many that wait", theirs.bytes, ours.bytes, most=5)
    cpu = 1000 * (rest.workers + rest.postgres) / rest.seconds
    yield Line("CPU of a second in which nothing happens, workers and Postgres", [cpu], " ms")


def _gather(site: Site, driver: Driver, contender: Contender, flows: int) -> Crowd:
    side, workers = contender.side, contender.workers
    kept, before = site.kept(side.name), _memory(workers)
    started = driver.start(side, "onboard", newcomers(flows), AT_ONCE)
    size = (site.kept(side.name) - kept) / flows
    return Crowd(flows / started.seconds, size, before, _memory(workers))


def _memory(programs: Sequence[Program]) -> float:
    """MB of one of them, in the mean."""
    return sum(program.memory() for program in programs) / len(programs) / 1e6


def _of_bytes(what: str, theirs: float, ours: float, **goal: float) -> Line:
    return Line(
        f"bytes of {what}",
        [ours / 1024],
        " KB",
        ours=f"{number(ours / theirs)} × the baseline's",
        reference=f"{number(theirs / 1024)} KB",
        **goal,
    )
