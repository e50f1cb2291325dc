"""The references, measured in the same run: bare transactions, pgbench of the same, a Celery round trip."""

import multiprocessing
import re
import subprocess
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from uuid import uuid4

import psycopg
import redis
from django.conf import settings

from tests.bench.figures import Finding, Line
from tests.bench.sides import baseline
from tests.bench.site import Site

BODY = "x" * 1024
TABLES = """
    CREATE TABLE IF NOT EXISTS loop_run (id uuid PRIMARY KEY, position bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS loop_entry (
        run_id uuid NOT NULL, position bigint NOT NULL, body text NOT NULL,
        PRIMARY KEY (run_id, position));
"""
INSERT = "INSERT INTO loop_entry VALUES (%s, %s, %s)"
UPDATE = "UPDATE loop_run SET position = %s WHERE id = %s"
PGBENCH = (
    "\\set n random(1, 2000000000)\n"
    "BEGIN;\n"
    f"INSERT INTO loop_entry VALUES (gen_random_uuid(), :n, repeat('x', {len(BODY)}));\n"
    "UPDATE loop_run SET position = :n WHERE id = '{run}';\n"
    "COMMIT;\n"
)


def measure(site: Site, *, quick: bool) -> Finding:
    seconds, rounds = (1.0, 3) if quick else (1.5, 5)
    alone = [bare_loop(site, processes=1, seconds=seconds) for _ in range(rounds)]
    trips = _round_trips(site, 50 if quick else 200)
    lines = [
        Line("bare transactions of INSERT 1 KB + UPDATE", alone, "/s"),
        *_pgbench(site, int(seconds) + 1),
        Line("round trip of a Celery task that does nothing", trips, " ms"),
    ]
    note = "The bare loop is one process with one connection and prepared statements."
    return Finding("References", lines, note)


def bare_loop(site: Site, *, processes: int, seconds: float) -> float:
    """Transactions a second of so many processes, each with a connection and a row of its own."""
    with site.connect() as connection:
        connection.execute(TABLES)
    context = multiprocessing.get_context("spawn")
    start, counts = context.Barrier(processes + 1), context.Queue()
    given = (site.cluster.url(), seconds, start, counts)
    loops = [context.Process(target=_loop, args=given) for _ in range(processes)]
    for loop in loops:
        loop.start()
    start.wait()
    found = [counts.get(timeout=60) for _ in loops]
    for loop in loops:
        loop.join()
    return float(sum(found))


def _loop(url: str, seconds: float, start: Barrier, counts: "multiprocessing.Queue[float]") -> None:
    run = uuid4()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO loop_run VALUES (%s, 0)", (run,))
        for position in range(1, 21):  # until the statements are prepared
            _transact(connection, run, position)
        start.wait()
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            position += 1
            _transact(connection, run, position)
    counts.put((position - 20) / took)


def _transact(connection: psycopg.Connection[object], run: object, position: int) -> None:
    with connection.transaction():
        connection.execute(INSERT, (run, position, BODY), prepare=True)
        connection.execute(UPDATE, (position, run), prepare=True)


def _pgbench(site: Site, seconds: int) -> Iterator[Line]:
    program = site.cluster.programs / "pgbench"
    if not program.exists():
        return
    run = uuid4()
    with site.connect() as connection:
        connection.execute("INSERT INTO loop_run VALUES (%s, 0)", (run,))
    script = site.folder / "pgbench.sql"
    script.write_text(PGBENCH.replace("{run}", str(run)))
    options = ("--no-vacuum", "--protocol=prepared", "--client=1", f"--time={seconds}")
    done = subprocess.run(
        [program, *options, f"--file={script}", site.cluster.url()],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    yield Line("pgbench of the same", [float(found[1])], "/s")


def _round_trips(site: Site, count: int) -> list[float]:
    """Milliseconds from sending a task to hearing from it, one after the other."""
    worker = site.baseline_worker()
    client = redis.Redis.from_url(settings.REDIS_URL)
    took = []
    for number in range(count + 5):
        began = time.perf_counter()
        baseline.nothing.delay(f"answer-{number}")
        assert client.blpop([f"answer-{number}"], timeout=10)
        took.append((time.perf_counter() - began) * 1000)
    site.end(worker)
    return took[5:]
