"""Many flows that wait: how fast they come there, what workers keep of them, and a decision beside them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench.figures import Line, Spread, number, one, ratios, spread
from tests.bench.measures.sizes import kept
from tests.bench.meters import Cost
from tests.bench.rounds import Contender, Pair, line, pairs
from tests.bench.sides.driver import AT_ONCE, Driver
from tests.bench.sides.workload import newcomers
from tests.support.site import Program, Site

REST = 10.0  # seconds in which nothing happens


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """A number of suspended flows of one side: flows a second, bytes of each, MB of a worker before and after."""

    rate: float
    bytes: float
    memory: tuple[float, float]


def measure(
    site: Site, driver: Driver, both: Sequence[Contender], flows: int, alone: Sequence[Pair]
) -> Iterator[Line]:
    """Both sides with so many suspended flows; `alone` are rounds of one at a time that were taken without them."""
    theirs, ours = (_gather(site, driver, contender, flows) for contender in both)
    beside = pairs(driver, both, len(alone), len(alone[0][0].started.runs), 1)
    rest = both[1].meters.rest(REST)
    yield line(f"{flows:,} flows to their gates", [ours.rate], [theirs.rate], "/s")
    yield Line(
        what=f"approve → finished, p50 alone, beside {flows:,} that wait to without",
        value=_beside(beside, alone, 1),
        unit=" ×",
        ours=f"{number(spread([ours.to_finish(50) for _, ours in beside]).median)} ms",
        reference=f"{number(_beside(beside, alone, 0).median)} × of the baseline's own",
    )
    before, after = ours.memory
    yield Line(
        what=f"memory of a worker with {flows:,} that wait to before",
        value=one(after / before),
        unit=" ×",
        ours=f"{number(after)} MB",
        reference=f"{number(theirs.memory[1])} MB, of all of the baseline's processes",
    )
    yield Line(
        what="bytes of each of them",
        value=one(ours.bytes / 1024),
        unit=" KB",
        most=5,
        ours=f"{number(ours.bytes / theirs.bytes)} × the baseline's",
        reference=f"{number(theirs.bytes / 1024)} KB",
    )
    yield Line(
        what="CPU of a second in which nothing happens, workers and Postgres",
        value=one(1000 * _at_rest(rest)),
        unit=" ms",
    )


def _gather(site: Site, driver: Driver, contender: Contender, flows: int) -> Crowd:
    before = kept(site, contender.side.name)
    memory = _memory(contender.workers)
    started = driver.start(contender.side, "onboard", newcomers(flows), AT_ONCE)
    return Crowd(
        rate=flows / started.seconds,
        bytes=(kept(site, contender.side.name) - before) / flows,
        memory=(memory, _memory(contender.workers)),
    )


def _memory(programs: Sequence[Program]) -> float:
    """MB of one of them, in the mean."""
    return sum(program.share() for program in programs) / len(programs) / 1e6


def _beside(beside: Sequence[Pair], alone: Sequence[Pair], side: int) -> Spread:
    return ratios(
        [pair[side].to_finish(50) for pair in beside], [pair[side].to_finish(50) for pair in alone]
    )


def _at_rest(rest: Cost) -> float:
    return (rest.workers + rest.postgres) / rest.seconds
