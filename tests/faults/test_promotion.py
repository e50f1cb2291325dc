"""A streaming standby of Postgres is promoted: it has what was committed, and no lease is taken over at once.

Only in the long form: the copy of the database takes longer than all it is made for.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connections

from config.local import accounts, children, postgres, programs
from config.local.postgres import Cluster
from runtime.store import leases, pool
from runtime.store.pool import Connection
from tests.e2e.office import until
from tests.fakes.ports import say, turns
from tests.runtime.conftest import MakeBench, Rig, rig, short_lease

pytestmark = pytest.mark.faults
__all__ = ["rig", "short_lease"]


@contextmanager
def standby_of(cluster: Cluster, place: Path) -> Iterator[Cluster]:
    """A server that streams from that one for as long as the block lasts."""
    accounts.give(cluster.account, [place])
    copy = Cluster(
        programs=cluster.programs,
        data=place / "data",
        socket=place,
        account=cluster.account,
        password=cluster.password,
    )
    source = cluster.url("postgres")
    backup = children.start(
        [cluster.programs / "pg_basebackup", "-d", source, "-D", copy.data, "-R", "-c", "fast"],
        account=cluster.account,
        environment=children.plain_environment(),
        folder=place,
        log=subprocess.DEVNULL,
    )
    assert backup.wait(60) == 0
    server = postgres.start(copy, subprocess.DEVNULL, postgres.FAST, arrange=_answers)
    try:
        yield copy
    finally:
        postgres.stop(server)


def _answers(cluster: Cluster) -> None:
    psycopg.connect(cluster.url("postgres"), connect_timeout=3).close()


@pytest.fixture
def primary(postgres_url: str, sandbox: Path, server_folder: Path) -> Cluster:
    """The server of the session, embedded."""
    account = accounts.unprivileged()
    return Cluster(
        programs=programs.postgres(account, sandbox / "programs"),
        data=server_folder / "postgres",
        socket=server_folder,
        account=account,
        password="for tests only",
    )


@pytest.mark.usefixtures("short_lease")
def test_a_promotion_takes_no_lease_over_at_once(
    rig: MakeBench, primary: Cluster, sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "runtime.store.calm.lease_seconds", lambda: 600.0
    )  # calm lasts as long as the test
    desk = rig({"a": turns(say("done"))})
    place = sandbox / "standby"
    place.mkdir(mode=0o700)
    with standby_of(primary, place) as standby:
        url = standby.url(str(connections["default"].settings_dict["NAME"]))
        run = _held_by_another(
            desk.start("a")
        )  # reaches the standby by streaming: the base copy is older
        with psycopg.connect(url, autocommit=True) as promoted:
            until(lambda: _is_held(promoted, run) or None, "the run to be streamed")
            until(lambda: _is_old(promoted) or None, "the standby to have been there for a lease")
            assert _may_rob(desk)
            promoted.execute("SELECT pg_promote()")
            # The address of Postgres leads to the standby now.
            monkeypatch.setattr(pool, "own", lambda name="": psycopg.connect(url, autocommit=True))
            _cut_heartbeat()
            last = _last_beat(promoted)
            until(lambda: _last_beat(promoted) > last or None, "the heartbeat to reach it")

            assert _is_old(promoted)  # when the server started says nothing of the promotion
            assert not _may_rob(desk)
            assert leases.claim(promoted, run, robs=_may_rob(desk)) is None
            assert leases.claim(promoted, run, robs=True) is not None


def _held_by_another(run: UUID) -> UUID:
    """A worker that could not renew its lease, which has run out meanwhile."""
    with pool.own() as own:
        own.execute(
            """
            UPDATE runtime_run SET owner = %s, due_at = '2000-01-01', lease_until = '2000-01-01'
            WHERE id = %s
            """,
            (uuid4(), run),
        )
    return run


def _is_held(connection: Connection, run: UUID) -> bool:
    row = connection.execute("SELECT owner IS NOT NULL FROM runtime_run WHERE id = %s", (run,))
    return row.fetchone() == (True,)


def _is_old(connection: Connection) -> bool:
    row = connection.execute(
        "SELECT pg_postmaster_start_time() < clock_timestamp() - %s * interval '1 second'",
        (leases.lease_seconds(),),
    )
    return row.fetchone() == (True,)


def _last_beat(connection: Connection) -> datetime:
    row = connection.execute("SELECT max(beat_at) FROM runtime_worker").fetchone()
    assert row is not None
    at: datetime = row[0]
    return at


def _may_rob(desk: Rig) -> bool:
    return desk.heartbeat.calm.over


def _cut_heartbeat() -> None:
    """The old primary is gone, as far as its connection is concerned."""
    with pool.pooled() as old:
        old.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE 'WITH beat AS%' AND pid <> pg_backend_pid()"
        )
