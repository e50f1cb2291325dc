"""A streaming standby of Postgres is promoted: it has all commits, and no lease is taken over at once.

Only in the long form: the copy of the database takes longer than all it is made for.
"""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connections
from pytest_django import Settings

from config.local.processes import spawn
from config.local.servers import postgres
from config.local.servers.postgres import Cluster
from runtime import broker
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.upkeep import due_runs
from tests.support import servers
from tests.support.engine import MakeBench, rig, short_lease
from tests.support.fake_ports import say, turns
from tests.support.people import until
from tests.upkeep.test_sweeper import room, sweeping, sweeps

pytestmark = pytest.mark.faults
__all__ = ["rig", "room", "short_lease", "sweeps"]


@contextmanager
def standby_of(cluster: Cluster, place: Path) -> Iterator[Cluster]:
    """A server that streams from that one for as long as the block lasts."""
    copy = replace(cluster, data=place / "data", socket=place)
    source = cluster.url("postgres")
    backup = spawn.start(
        [cluster.programs / "pg_basebackup", "-d", source, "-D", copy.data, "-R", "-c", "fast"],
        account=cluster.account,
        environment=spawn.build_plain_environment(),
        folder=place,
        log=subprocess.DEVNULL,
    )
    assert backup.wait(60) == 0
    server = postgres.start(
        copy,
        subprocess.DEVNULL,
        postgres.FAST,
        arrange=lambda cluster: psycopg.connect(cluster.url("postgres"), connect_timeout=3).close(),
    )
    try:
        yield copy
    finally:
        postgres.stop(server)


@pytest.mark.usefixtures("short_lease", "room")
def test_a_promotion_takes_no_lease_over_at_once(
    rig: MakeBench,
    sweeps: list[tuple[int, bool]],
    postgres_url: str,
    sandbox: Path,
    server_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
) -> None:
    run = rig({"a": turns(say("done"))}).start("a")
    primary = servers.cluster(sandbox, server_folder)  # the server of the session, embedded
    with standby_of(primary, servers.own(sandbox / "standby")) as standby:
        url = standby.url(str(connections["default"].settings_dict["NAME"]))
        with sweeping(threading.Event()), psycopg.connect(url, autocommit=True) as promoted:
            until(
                lambda: any(may_take_over for _, may_take_over in sweeps) or None,
                "a sweeper that has been there for a lease",
            )
            # The delay lasts as long as the test from here on.
            settings.SIGNOFF_LEASE_SECONDS = 600.0
            until(lambda: _is_old(promoted) or None, "the standby to have been there for a lease")
            promoted.execute("SELECT pg_promote()")
            # The address of Postgres leads to the standby now.
            monkeypatch.setattr(
                pool, "open_own", lambda name="": psycopg.connect(url, autocommit=True)
            )
            # A worker could not renew its lease, which has run out meanwhile.
            promoted.execute(
                "UPDATE runtime_run SET owner = %s, worker = NULL, due_at = '2000-01-01' WHERE id = %s",
                (uuid4(), run),
            )
            before = len(sweeps)
            with pool.pooled() as old:
                old.execute("SELECT pg_terminate_backend(%s)", [sweeps[-1][0]])
            until(lambda: len(sweeps) > before + 3 or None, "sweeps of the new primary")

            assert _is_old(promoted)  # when the server started says nothing of the promotion
            assert not sweeps[-1][1]
            assert _is_held(promoted, run)
            due_runs.dispatch_window(promoted, broker.QUEUES, may_take_over=True)
            assert not _is_held(promoted, run)


def _is_held(connection: Connection, run: UUID) -> bool:
    row = connection.execute("SELECT owner IS NOT NULL FROM runtime_run WHERE id = %s", (run,))
    return row.fetchone() == (True,)


def _is_old(connection: Connection) -> bool:
    row = connection.execute("SELECT pg_postmaster_start_time() < now() - interval '1 second'")
    return row.fetchone() == (True,)
