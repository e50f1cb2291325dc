"""Bytes that a side keeps in Postgres: its tables with their partitions, indexes and TOAST."""

from collections.abc import Sequence

from tests.bench.figures import Line, number, one
from tests.bench.rounds import Contender
from tests.bench.sides.driver import AT_ONCE, Driver
from tests.bench.sides.workload import newcomers
from tests.support.site import Site

KEPT = """
    SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND (relname LIKE 'baseline_%%') = %s
"""


def kept(site: Site, side: str) -> int:
    """Bytes so far."""
    with site.connect() as connection:
        (row,) = connection.execute(KEPT, (side == "baseline",)).fetchall()
    return int(str(row[0]))


def measure(site: Site, driver: Driver, both: Sequence[Contender], flows: int) -> list[Line]:
    """Bytes of a flow that waits, and of one that has ended; of so many, while Postgres tidies nothing up."""
    found = []
    for contender in both:
        side = contender.side
        before = kept(site, side.name)
        started = driver.start(side, "onboard", newcomers(flows), AT_ONCE)
        suspended = kept(site, side.name)
        driver.finish(side, side.pending(started.runs), AT_ONCE)
        found.append(((suspended - before) / flows, (kept(site, side.name) - before) / flows))
    (baseline_waits, baseline_ended), (waits, ended) = found
    return [
        Line(
            what="bytes of a suspended flow",
            value=one(waits / 1024),
            unit=" KB",
            most=5,
            ours=f"{number(waits / baseline_waits)} × the baseline's",
            reference=f"{number(baseline_waits / 1024)} KB",
        ),
        Line(
            what="bytes of a finished flow",
            value=one(ended / 1024),
            unit=" KB",
            ours=f"{number(ended / baseline_ended)} × the baseline's",
            reference=f"{number(baseline_ended / 1024)} KB",
        ),
    ]
