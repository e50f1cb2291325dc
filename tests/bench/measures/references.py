"""The references, measured in the same run: bare transactions, pgbench of the same, a Celery round trip."""

import multiprocessing
import re
import subprocess
import time
from multiprocessing.synchronize import Barrier
from uuid import uuid4

import psycopg
import redis
from django.conf import settings

from tests.bench.figures import Finding, Line, one, spread
from tests.support.site import Site

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
    """Measure the speed of this machine at the reference operations."""
    seconds, rounds = (1.0, 3) if quick else (1.5, 5)
    alone = [bare_loop(site, processes=1, seconds=seconds) for _ in range(rounds)]
    lines = [
        Line(what="bare transactions of INSERT 1 KB + UPDATE", value=spread(alone), unit="/s"),
        *_pgbench(site, int(seconds) + 1),
        Line(
            what="round trip of a Celery task that does nothing",
            value=spread(round_trips(site, 50 if quick else 200)),
            unit=" ms",
        ),
    ]
    return Finding(
        title="References",
        lines=tuple(lines),
        notes=("The bare loop is one process with one connection and prepared statements.",),
    )


def bare_loop(site: Site, *, processes: int, seconds: float) -> float:
    """Transactions a second of so many processes, each with a connection and a row of its own."""
    with site.connect() as connection:
        connection.execute(TABLES)
    context = multiprocessing.get_context("spawn")
    start, counts = context.Barrier(processes + 1), context.Queue()
    url = site.cluster.url()
    loops = [
        context.Process(target=_loop, args=(url, seconds, start, counts)) for _ in range(processes)
    ]
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
        position = 0
        while position < 20:  # until the statements are prepared
            position += 1
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


def _pgbench(site: Site, seconds: int) -> list[Line]:
    program = site.cluster.programs / "pgbench"
    if not program.exists():
        return []
    run = uuid4()
    with site.connect() as connection:
        connection.execute("INSERT INTO loop_run VALUES (%s, 0)", (run,))
    script = site.folder / "pgbench.sql"
    script.write_text(PGBENCH.replace("{run}", str(run)))
    url = site.cluster.url()
    done = subprocess.run(
        [
            *(program, "--no-vacuum", "--protocol=prepared", "--client=1"),
            *(f"--time={seconds}", f"--file={script}", _conninfo(url)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    return [Line(what="pgbench of the same", value=one(float(found[1])), unit="/s")]


def _conninfo(url: str) -> str:
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return psycopg.conninfo.make_conninfo(**parts)  # type: ignore[arg-type]


def round_trips(site: Site, count: int) -> list[float]:
    """Milliseconds from sending a task to hearing from it, one after the other."""
    from tests.bench.sides import baseline

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
