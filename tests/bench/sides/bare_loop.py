"""The reference of the `steps` measure: processes that commit bare transactions of INSERT 1 KB + UPDATE."""

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from uuid import uuid4

import psycopg

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
