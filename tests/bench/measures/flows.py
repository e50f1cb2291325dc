"""Flows with a directory and mail: `hr_onboarding_single`, ours and the loop written by hand.

Both do the same work against the same directory and mailbox, with as many worker processes and threads. They take
turns, round by round, as in the `engine` measure.
"""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.bench.figures import Finding
from tests.bench.rounds import Contender, compared, of_cost, pairs, take
from tests.bench.sides import baseline
from tests.bench.sides.desk import Desk
from tests.bench.sides.driver import AT_ONCE, Driver, driving
from tests.bench.sides.workload import newcomers
from tests.bench.site import Site
from tests.support.people import newcomer

AGENT = "hr_onboarding_single"
NOTE = (
    "{processes} worker processes of as many threads on each side. The processor time is without directory and"
    " mailbox. Ours asks the directory for two previews."
)


def measure(site: Site, *, quick: bool) -> Finding:
    rounds, alone, crowd = (3, 5, 16) if quick else (15, 10, 40)
    processes = os.cpu_count() or 1
    with driving(site) as driver:
        sides = (
            (baseline, [site.directory_worker() for _ in range(processes)]),
            (Desk(), [site.worker() for _ in range(processes)]),
        )
        both = [_warm(driver, Contender(site, driver, side, workers)) for side, workers in sides]
        quiet = pairs(driver, both, rounds, alone, 1, agent=AGENT, given=people)
        busy = pairs(driver, both, rounds, crowd, AT_ONCE, agent=AGENT, given=people)
        site.end(*both[0].workers, *both[1].workers)
    share = partial(compared, unit=" ms", most=1.3)
    return Finding(
        f"With a directory and mail: {AGENT} against a Celery loop written by hand",
        (
            compared("flows a second, 8 at once", busy, lambda one: one.rate, "/s", least=0.77),
            share("start → suspended, p50 alone", quiet, lambda one: one.to_suspend(50)),
            share("start → suspended, p95 under load", busy, lambda one: one.to_suspend(95)),
            share("approve → finished, p50 alone", quiet, lambda one: one.to_finish(50)),
            share("approve → finished, p95 under load", busy, lambda one: one.to_finish(95)),
            *of_cost(busy, cpu=1.3),
        ),
        NOTE.format(processes=processes),
    )


def people(count: int) -> Iterator[dict[str, Any]]:
    return (newcomer(one["username"]) for one in newcomers(count))


def _warm(driver: Driver, one: Contender) -> Contender:
    """Take a side as far as everything is imported and prepared."""
    take(driver, one, 8 * len(one.workers), AT_ONCE, agent=AGENT, given=people)
    one.idle = one.rest(3.0)
    return one
