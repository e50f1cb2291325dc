"""With a directory and mail: `hr_onboarding_single`, ours and the loop written by hand.

From its start through one approval to its end. Both do the same work against the same directory and mailbox, with as
many worker processes and threads. They take turns, round by round; each ratio is of two neighbouring rounds, so that
what else the machine does meets both. Times are from the call that starts or approves a run until its status is seen
to have changed.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from uuid import UUID, uuid4

from tests.bench import bare
from tests.bench.desk import PATIENCE, Desk
from tests.bench.figures import Finding, Line, Spread, number, one, percentile, ratios, spread
from tests.bench.site import Program, Site

AGENT = "hr_onboarding_single"
LOOK_SECONDS = {True: 0.002, False: 0.010}  # between two looks: alone, and under load
AT_ONCE = 8
NOTE = (
    "{processes} worker processes of 16 threads on each side, each on a core of its own; `alone` is one flow at"
    " a time, `under load` {at_once} at once. The directory, the mailbox and the process that starts, looks and"
    " decides share the machine, and are the same for both."
)


class Side(Protocol):
    """Whom a round is driven against."""

    def start(self, newcomer: dict[str, Any]) -> UUID: ...
    def look(self, runs: Iterable[UUID]) -> dict[UUID, str]: ...
    def approve(self, run: UUID) -> None: ...


class Ours:
    """The engine, as the web process uses it."""

    def __init__(self, desk: Desk) -> None:
        self.start = partial(desk.start, AGENT)
        self.look = desk.look
        self.approve = desk.approve


class Bare:
    """The loop written by hand."""

    def __init__(self) -> None:
        bare.make_tables()
        self.start = bare.start
        self.approve = partial(bare.approve, by="bea")

    def look(self, runs: Iterable[UUID]) -> dict[UUID, str]:
        with bare.pool().connection() as connection:
            rows = connection.execute(
                "SELECT id, status FROM bare_run WHERE id = ANY(%s)", (list(runs),)
            )
            return dict(rows.fetchall())


@dataclass(slots=True, kw_only=True)
class Flow:
    """When each thing happened, in seconds of the steady clock."""

    started: float
    suspended: float = 0.0
    approved: float = 0.0
    finished: float = 0.0

    @property
    def to_suspend(self) -> float:
        return self.suspended - self.started

    @property
    def to_finish(self) -> float:
        return self.finished - self.approved


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """So many flows, how long they took together, and the processor time of workers and Postgres."""

    flows: tuple[Flow, ...]
    seconds: float
    workers: float
    postgres: float

    @property
    def rate(self) -> float:
        return len(self.flows) / self.seconds

    @property
    def cpu(self) -> float:
        """Seconds per flow."""
        return (self.workers + self.postgres) / len(self.flows)

    def time(self, which: Callable[[Flow], float], percent: float) -> float:
        """Milliseconds."""
        return 1000 * percentile([which(flow) for flow in self.flows], percent)


def measure(site: Site, *, quick: bool) -> Finding:
    """Rate, processor time, latencies and the number of commits."""
    rounds, alone, crowd = (3, 5, 16) if quick else (15, 10, 40)
    processes = os.cpu_count() or 1
    desk = Desk()
    sweeper = site.sweeper()
    workers = [site.worker() for _ in range(processes)]
    loops = [site.bare_worker() for _ in range(processes)]
    ours, theirs = Ours(desk), Bare()
    for side in (ours, theirs):
        drive(side, 8 * processes, AT_ONCE)  # until everything is imported and prepared
    pairs = [
        (_round(site, theirs, loops, number, width), _round(site, ours, workers, number, width))
        for number, width in [(alone, 1), (crowd, AT_ONCE)] * rounds
    ]
    quiet, busy = pairs[0::2], pairs[1::2]
    counted = _count(site, ours, 3 * alone)
    bare_counted = _count(site, theirs, 3 * alone)
    site.end(sweeper, *workers, *loops)
    return Finding(
        title=f"With a directory and mail: {AGENT} against a Celery loop written by hand",
        lines=(
            *_of_rounds(quiet, busy),
            *_of_counts(counted, bare_counted),
        ),
        notes=(
            NOTE.format(processes=processes, at_once=AT_ONCE),
            f"Processor time of a flow of ours under load: {_cpu(busy)}.",
        ),
    )


def drive(side: Side, count: int, width: int) -> tuple[Flow, ...]:
    """So many flows, `width` of them at once; approved as soon as they are seen to wait."""
    flows: dict[UUID, Flow] = {}
    active: set[UUID] = set()
    deadline = time.monotonic() + PATIENCE
    while len(flows) < count or active:
        assert time.monotonic() < deadline, f"{len(active)} flows did not end"
        while len(flows) < count and len(active) < width:
            began = time.perf_counter()
            run = side.start(_newcomer())
            flows[run] = Flow(started=began)
            active.add(run)
        for run, status in side.look(active).items():
            _note(side, run, flows[run], status)
            if status == "completed":
                active.discard(run)
        time.sleep(LOOK_SECONDS[width == 1])
    return tuple(flows.values())


def _note(side: Side, run: UUID, flow: Flow, status: str) -> None:
    now = time.perf_counter()
    assert status not in ("failed", "cancelled", "quarantined"), f"run {run} is {status}"
    if status == "suspended" and not flow.suspended:
        flow.suspended = flow.approved = now
        side.approve(run)
    elif status == "completed":
        flow.finished = now


def _round(site: Site, side: Side, workers: list[Program], count: int, width: int) -> Round:
    spent, postgres = sum(one.cpu() for one in workers), site.postgres_cpu()
    began = time.perf_counter()
    flows = drive(side, count, width)
    return Round(
        flows=flows,
        seconds=time.perf_counter() - began,
        workers=sum(one.cpu() for one in workers) - spent,
        postgres=site.postgres_cpu() - postgres,
    )


def _of_rounds(quiet: list[tuple[Round, Round]], busy: list[tuple[Round, Round]]) -> list[Line]:
    lines = [
        _line("flows a second under load", busy, lambda one: one.rate, "/s", least=0.77),
        _line("processor time of a flow", busy, lambda one: 1000 * one.cpu, " ms", most=1.3),
    ]
    for what, which in (
        ("start → suspended", lambda flow: flow.to_suspend),
        ("approve → finished", lambda flow: flow.to_finish),
    ):
        for name, pairs, percent in (("p50 alone", quiet, 50), ("p95 under load", busy, 95)):
            taken = partial(Round.time, which=which, percent=percent)
            lines.append(_line(f"{what}, {name}", pairs, taken, " ms", most=1.3))
    return lines


def _line(
    what: str,
    pairs: list[tuple[Round, Round]],
    taken: Callable[[Round], float],
    unit: str,
    **goal: float,
) -> Line:
    theirs, ours = [taken(one) for one, _ in pairs], [taken(one) for _, one in pairs]
    return Line(
        what=what,
        value=ratios(ours, theirs),
        unit=" ×",
        ours=_median(ours, unit),
        reference=_median(theirs, unit),
        **goal,
    )


def _median(values: list[float], unit: str) -> str:
    return f"{number(spread(values).median)}{unit}"


def _cpu(pairs: list[tuple[Round, Round]]) -> str:
    def each(which: Callable[[Round], float]) -> Spread:
        return spread([1000 * which(one) / len(one.flows) for _, one in pairs])

    return (
        f"{each(lambda one: one.workers).text(' ms')} of workers,"
        f" {each(lambda one: one.postgres).text(' ms')} of Postgres"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Per flow: transactions that wrote, without heartbeats; statements; bytes of WAL."""

    wrote: float
    statements: float
    wal: float


def _count(site: Site, side: Side, flows: int) -> Counted:
    """What Postgres counts of so many flows, one at a time, less what it counts when nothing happens.

    Meanwhile it does not tidy up by itself: of what all measures leave behind the flows would get an accidental share.
    """
    with site.untidied():
        idle, seconds = _counters(site, lambda: time.sleep(3.0))
        busy, took = _counters(site, partial(drive, side, flows, 1))
    each = [(mine - rest * took / seconds) / flows for mine, rest in zip(busy, idle, strict=True)]
    return Counted(wrote=each[0], statements=each[1], wal=each[2])


def _counters(site: Site, act: Callable[[], object]) -> tuple[list[float], float]:
    """Growth of xids without beats, statements and WAL while `act` lasts, and its seconds; without looks."""
    with site.connect() as connection:
        connection.execute("SELECT pg_stat_statements_reset()")
        before, began = _read(connection), time.perf_counter()
        act()
        time.sleep(1.2)  # Postgres' processes tell of their transactions once a second
        took = time.perf_counter() - began
        after = _read(connection)
    grown = [late - early for late, early in zip(after, before, strict=True)]
    looks, beats = after[3:]
    return [grown[0] - beats, after[1] - looks, grown[2]], took


def _read(connection: Any) -> list[float]:
    (row,) = connection.execute(
        """
        SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
            (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements),
            pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'),
            (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
                WHERE query LIKE 'SELECT id, status FROM %'),
            (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE 'WITH beat AS %'),
            pg_stat_clear_snapshot()::text
        """
    ).fetchall()
    return [float(value) for value in row[:5]]


def _of_counts(ours: Counted, theirs: Counted) -> list[Line]:
    return [
        Line(
            what="commits of a flow: transactions that write",
            value=one(ours.wrote),
            most=11,
            ours=number(ours.wrote),
            reference=number(theirs.wrote),
        ),
        Line(
            what="statements of a flow",
            value=one(ours.statements),
            ours=number(ours.statements),
            reference=number(theirs.statements),
        ),
        Line(
            what="WAL of a flow",
            value=one(ours.wal / theirs.wal),
            unit=" ×",
            ours=f"{number(ours.wal / 1024)} KB",
            reference=f"{number(theirs.wal / 1024)} KB",
        ),
    ]


def _newcomer() -> dict[str, Any]:
    name = f"n{uuid4().hex[:12]}"
    return {
        "full_name": "New Hire",
        "email": f"{name}@example.org",
        "username": name,
        "security_level": 2,
    }
