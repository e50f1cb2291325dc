"""Stands where the web process would: starts runs and decides, as so many people at once, and hears when they are done.

It hears of it from Postgres: a trigger of the bench's own on each side's table of runs tells of a run that is suspended
or has ended, at its commit. So it asks for nothing meanwhile, and it knows nothing of how a side works inside.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from tests.bench.sides import baseline
from tests.bench.sides.desk import ENDS, TIMEOUT_SECONDS
from tests.bench.site import Site

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

    def start(self, agent: str, given: Any, /) -> UUID: ...
    def pending(self, runs: Sequence[UUID], /) -> dict[UUID, Any]: ...
    def approve(self, found: Any, /) -> None: ...
    def output(self, run: UUID, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Driven:
    """Runs with the milliseconds that each took, from the call until it was heard of, and the seconds of all."""

    runs: Sequence[UUID]
    times: Sequence[float]
    seconds: float


class Driver:
    """People at their desks, one thread each, and one thread that listens; use `driving`."""

    def __init__(self, site: Site) -> None:
        self._people = ThreadPoolExecutor(AT_ONCE, "person")
        self._heard: defaultdict[tuple[UUID, str], Future[float]] = defaultdict(Future)
        self._lock = threading.Lock()
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
        runs, times = zip(*found, strict=True)
        return Driven(runs, times, time.perf_counter() - began)

    def wait(self, run: UUID, status: str) -> float:
        """Wait for the message that the run has this status, and return its time."""
        with self._lock:
            heard = self._heard[run, status]
        at = heard.result(TIMEOUT_SECONDS)
        with self._lock:
            del self._heard[run, status]
        return at

    def _listen(self) -> None:
        while not self._stopped.is_set():
            for told in self._connection.notifies(timeout=0.5):
                self._hear(*told.payload.split())

    def _hear(self, run: str, status: str) -> None:
        with self._lock:
            self._heard[UUID(run), status].set_result(time.perf_counter())
            waiting = list(self._heard.values()) if status in ENDS[1:] else []
        for one in waiting:
            if not one.done():
                one.set_exception(AssertionError(f"run {run} is {status}"))


@contextmanager
def driving(site: Site) -> Iterator[Driver]:
    """A driver that receives the messages of both sides' runs, beside a sweeper and a Postgres without vacuum.

    The baseline has its tables from here on.
    """
    told = f"NEW.status IN {(SUSPENDED, *ENDS)}"
    root = f"{told} AND (NEW.status = '{SUSPENDED}' OR NEW.parent IS NULL)"
    with site.connect() as connection:
        connection.execute(baseline.TABLES)
        connection.execute(TRIGGER.format(table="runtime_run", run="NEW.id", when=told))
        connection.execute(TRIGGER.format(table="baseline_run", run="NEW.root", when=root))
    sweeper, driver = site.sweeper(), Driver(site)
    try:
        with site.untidied():
            yield driver
    finally:
        driver.close()
        site.end(sweeper)
