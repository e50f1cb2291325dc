"""The whole application through a real PgBouncer in transaction pooling."""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from runtime.store import pool
from tests.support import commands, processes
from tests.support.deployment import pgbouncer
from tests.support.people import Office
from tests.support.stack import Stack

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(pgbouncer.version() is None, reason="there is no PgBouncer here"),
]

NAME = "through_pgbouncer"


@pytest.fixture(scope="module")
def direct(postgres_url: str) -> Iterator[str]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}")
        yield psycopg.conninfo.make_conninfo(postgres_url, dbname=NAME)
        connection.execute(f"DROP DATABASE {NAME} WITH (FORCE)")


@pytest.fixture(scope="module")
def through(direct: str) -> Iterator[str]:
    with pgbouncer.before(direct) as url:
        yield url


def test_flows_start_stop_at_their_gates_are_approved_and_end(through: str, sandbox: Path) -> None:
    prepared = "yes" if (pgbouncer.version() or ()) >= pgbouncer.PREPARES else "no"
    stack = Stack(
        sandbox / "pgbouncer",
        DATABASE_URL=through,
        SIGNOFF_UNSAFE_POSTGRES="yes",
        SIGNOFF_PREPARED_STATEMENTS=prepared,
    )
    with stack:
        office = Office(stack)
        names = [f"pooled-{number}" for number in range(8)]
        runs = [office.start("hr_onboarding_single", name) for name in names]
        for run in runs:
            office.wait(run, "suspended")
            assert office.decide("bea", office.approval(run), "approve")[0] == 200
        for run, name in zip(runs, names, strict=True):
            office.wait(run, "completed")
            assert office.mails(name) == 1
        office.execute(
            "from django.core.management import call_command\n"
            "for process in ('sweeper', 'worker', 'isolated'): call_command('healthcheck', process)"
        )
        for kind in ("web", "worker"):
            said = processes.of(stack, kind).log.read_text()
            assert "prepared statement" not in said, said[-3000:]
            assert "Traceback" not in said, said[-3000:]


def test_the_transaction_of_another_connection_can_be_ended(through: str, direct: str) -> None:
    with psycopg.connect(through) as held, psycopg.connect(direct, autocommit=True) as own:
        assert held.info.backend_pid != pool.read_backend_id(held)
        assert own.execute(
            "SELECT pg_terminate_backend(%s)", [pool.read_backend_id(held)]
        ).fetchone() == (True,)
        with pytest.raises(psycopg.OperationalError):
            held.execute("SELECT 1")


def test_a_process_does_not_start_without_statement_timeouts(direct: str) -> None:
    with pgbouncer.before(direct, "connect_query") as url:
        done = commands.manage("sweep", env={**os.environ, "DATABASE_URL": url})
    assert done.returncode == 1
    assert "has lock_timeout = 0, though the process asks for a limit" in done.stderr
