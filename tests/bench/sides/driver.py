"""Stands where the web process would: starts runs and decides, as so many people at once, and hears when they are done.

It hears of it from Postgres: a trigger of the bench's own on each side's table of runs tells of a run that is suspended
or has ended, at its commit. So it asks for nothing meanwhile, and it knows nothing of how a side works inside.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from tests.bench.sides import baseline
from tests.bench.sides.desk import (
    BEA,
    ENDS,
    TIMEOUT_SECONDS,
    Desk,
)
from tests.support.site import Site

AT_ONCE = 8
SUSPENDED, COMPLETED = "suspended", "completed"
TRIGGER = """
    CREATE OR REPLACE FUNCTION bench_{table}() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('bench', {run}::text || ' ' || NEW.status); RETURN NULL; END $$;
    CREATE OR REPLACE TRIGGER bench AFTER UPDATE OF status ON {table} FOR EACH ROW
        WHEN (NEW.status IS DISTINCT FROM OLD.status AND {when}) EXECUTE FUNCTION bench_{table}();
"""


class Side(Protocol):
    """One side of a comparison. `pending` is called between measurements; `approve` takes its values."""

    name: str

    def start(self, agent: str, given: Any) -> UUID: ...
    def pending(self, runs: Sequence[UUID]) -> dict[UUID, Any]: ...
    def approve(self, found: Any) -> None: ...
    def output(self, run: UUID) -> str: ...


class Ours:
    """The engine, as the web process uses it."""

    name = "ours"

    def __init__(self, desk: Desk) -> None:
        self.start = desk.ask
        self.pending = desk.pending
        self.approve = desk.decide
        self.output = desk.output


class Baseline:
    """The loop written by hand."""

    name = "baseline"
    start = staticmethod(baseline.start)
    pending = staticmethod(baseline.pending)
    approve = staticmethod(partial(baseline.approve, by=str(BEA.person)))
    output = staticmethod(baseline.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """Runs with the milliseconds that each took, from the call until it was heard of, and the seconds of all."""

    runs: tuple[UUID, ...]
    times: tuple[float, ...]
    seconds: float


class Driver:
    """People at their desks, one thread each, and one thread that listens; use `driving`."""

    def __init__(self, site: Site) -> None:
        self._people = ThreadPoolExecutor(AT_ONCE, "person")
        self._heard: dict[tuple[UUID, str], float] = {}
        self._waiting: dict[tuple[UUID, str], threading.Event] = {}
        self._lock = threading.Lock()
        self._failed = ""
        self._stopped = threading.Event()
        self._connection = site.connect()
        self._connection.execute("LISTEN bench")
        self._listener = threading.Thread(target=self._listen, name="listener", daemon=True)
        self._listener.start()

    def close(self) -> None:
        self._stopped.set()
        self._listener.join()
        self._connection.close()
        self._people.shutdown()

    def start(self, side: Side, agent: str, given: Iterable[Any], width: int) -> Driven:
        """Start a run for each input, `width` at once, and take each as far as its gate."""
        return self._drive(partial(side.start, agent), given, SUSPENDED, width)

    def finish(self, side: Side, pending: Mapping[UUID, Any], width: int) -> Driven:
        """Approve what each run waits for, and take it to its end."""

        def approve(run: UUID) -> UUID:
            side.approve(pending[run])
            return run

        return self._drive(approve, pending, COMPLETED, width)

    def cpu(self) -> float:
        """Seconds of processor time of this process, without those of listening."""
        assert self._listener.ident is not None
        return time.process_time() - time.clock_gettime(
            time.pthread_getcpuclockid(self._listener.ident)
        )

    def _drive(
        self, act: Callable[[Any], UUID], given: Iterable[Any], status: str, width: int
    ) -> Driven:
        todo, lock = iter(given), threading.Lock()
        began = time.perf_counter()

        def person() -> list[tuple[UUID, float]]:
            done: list[tuple[UUID, float]] = []
            while True:
                with lock:
                    one = next(todo, None)
                if one is None:
                    return done
                at = time.perf_counter()
                run = act(one)
                done.append((run, 1000 * (self.wait(run, status) - at)))

        people = [self._people.submit(person) for _ in range(width)]
        found = [pair for one in people for pair in one.result()]
        return Driven(
            runs=tuple(run for run, _ in found),
            times=tuple(took for _, took in found),
            seconds=time.perf_counter() - began,
        )

    def wait(self, run: UUID, status: str) -> float:
        """Wait for the message that the run has this status, and return its time."""
        key = run, status
        with self._lock:
            if key not in self._heard:
                event = self._waiting[key] = threading.Event()
            else:
                return self._heard.pop(key)
        assert event.wait(TIMEOUT_SECONDS), f"run {run} is not {status}"
        assert not self._failed, self._failed
        with self._lock:
            return self._heard.pop(key)

    def _listen(self) -> None:
        while not self._stopped.is_set():
            for told in self._connection.notifies(timeout=0.5):
                run, status = told.payload.split()
                self._hear(UUID(run), status)

    def _hear(self, run: UUID, status: str) -> None:
        key = run, status
        with self._lock:
            self._heard[key] = time.perf_counter()
            told = [self._waiting.pop(key)] if key in self._waiting else []
            if status in ENDS[1:]:
                self._failed = f"run {run} is {status}"
                told = list(self._waiting.values())
        for waiting in told:
            waiting.set()


@contextmanager
def driving(site: Site) -> Iterator[Driver]:
    """A driver that hears of both sides' runs; the baseline has its tables from here on."""
    with site.connect() as connection:
        connection.execute(baseline.TABLES)
        ends = ", ".join(f"'{end}'" for end in ENDS)
        told = f"NEW.status IN ('{SUSPENDED}', {ends})"
        for table, run, when in (
            ("runtime_run", "NEW.id", told),
            (
                "baseline_run",
                "NEW.root",
                f"{told} AND (NEW.status = '{SUSPENDED}' OR NEW.parent IS NULL)",
            ),
        ):
            connection.execute(TRIGGER.format(table=table, run=run, when=when))
    driver = Driver(site)
    try:
        yield driver
    finally:
        driver.close()
