"""The engine's pool after Postgres was away."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import psycopg
import psycopg_pool.pool
import pytest
from django.utils import timezone
from psycopg.adapt import AdaptersMap

from runtime.store import pool
from tests.support.calls import around
from tests.support.people import until

CONNECTIONS = pool.POOL_SIZE


@pytest.mark.usefixtures("transactional_db")
def test_one_dead_connection_removes_all_dead_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    pool.close()
    with ExitStack() as held:
        pids = [held.enter_context(pool.pooled()).info.backend_pid for _ in range(CONNECTIONS)]
    with pool.open_own() as own:
        own.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s::int[]) AS pid", (pids,)
        )
    pauses: list[float] = []
    monkeypatch.setattr(psycopg_pool.pool, "sleep", pauses.append)
    for _ in range(CONNECTIONS):
        assert _backend()
    assert len(pauses) <= 1


@pytest.mark.usefixtures("transactional_db")
def test_the_connection_that_was_given_back_last_is_taken_first() -> None:
    with pool.pooled() as first, pool.pooled() as second:
        assert first is not second
    for _ in range(2):  # the outer one of two was given back last
        with pool.pooled() as again:
            assert again is first
    with pool.pooled() as last:
        pool.close()
    assert last.closed, "it outlives its pool"


@pytest.mark.usefixtures("transactional_db")
def test_a_statement_learns_its_parameter_types_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[type] = []
    around(monkeypatch, AdaptersMap, "get_dumper", before=lambda _, kind, *__: learnt.append(kind))
    first, second = "SELECT %(a)s::text", "SELECT %(a)s::text, %(b)s::bytea"
    parameters = {"a": "a", "b": b"b"}
    with pool.pooled() as connection:
        for statement in (first, second):
            pool.fetch_row(connection, statement, parameters)
        assert set(learnt) == {str, bytes}
        learnt.clear()
        for statement in (first, second):
            assert pool.fetch_row(connection, statement, parameters) is not None
        assert not learnt


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("binary", [False, True])
def test_a_frequent_statement_returns_what_a_cursor_returns(*, binary: bool) -> None:
    columns = "%(a)s::text, %(b)s::uuid, 7 %% 4, %(a)s::text, %(c)s::int[], %(d)s::bytea, %(e)s::timestamptz"
    statement = f"SELECT {columns} WHERE %(more)s::bool"
    values = {"a": "ä%(b)s", "b": UUID(int=1), "c": [1, None], "d": b"\0", "e": timezone.now()}
    with pool.pooled() as connection:
        for more in (True, False):
            for row in (values, dict.fromkeys(values)):
                parameters = {**row, "more": more}
                expected = connection.execute(statement, parameters, binary=binary).fetchone()
                assert pool.fetch_row(connection, statement, parameters, binary=binary) == expected
                assert (expected is None) is not more


@pytest.mark.usefixtures("transactional_db")
def test_errors_of_a_frequent_statement_are_those_of_a_cursor() -> None:
    statement, parameters = "SELECT 1 / %(a)s", {"a": 0}
    with pool.pooled() as connection:
        with pytest.raises(psycopg.errors.DivisionByZero) as told:
            pool.fetch_row(connection, statement, parameters)
        assert "division by zero" in str(told.value)
        with pytest.raises(psycopg.errors.SyntaxError):
            pool.fetch_row(connection, "SELEC %(a)s", parameters)
        ended = connection.info.backend_pid
        with pool.open_own() as other:
            other.execute("SELECT pg_terminate_backend(%s)", (ended,))
        with pytest.raises(psycopg.OperationalError) as lost:
            pool.fetch_row(connection, statement, {"a": 1})
        assert pool.is_passing(lost.value)
    with pool.pooled() as connection:
        assert pool.fetch_row(connection, statement, {"a": 1}) == (1,)


@pytest.mark.usefixtures("transactional_db")
def test_a_connection_keeps_a_bounded_number_of_prepared_statements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "MAX_PREPARED", 3)
    pool.close()
    with pool.pooled() as connection:
        for number in (*range(5), *range(5)):
            row = pool.fetch_row(connection, f"SELECT %(a)s::int + {number}", {"a": 1})
            assert row == (1 + number,)
        count = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'row_%%'"
        assert connection.execute(count).fetchall() == [(3,)]


@pytest.mark.usefixtures("transactional_db")
def test_a_frequent_statement_is_planned_once_and_limits_stay() -> None:
    with pool.pooled() as connection:
        for _ in range(3):
            pool.fetch_row(connection, "SELECT %(a)s::text AS name", {"a": "a"})
        plans = "SELECT generic_plans, custom_plans FROM pg_prepared_statements"
        assert connection.execute(f"{plans} WHERE statement LIKE '%AS name'").fetchall() == [(3, 0)]
        assert connection.execute("SHOW lock_timeout").fetchall() == [("2s",)]


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize(
    "change", ["ALTER TABLE counted ALTER number TYPE bigint", "DEALLOCATE ALL"]
)
def test_a_statement_whose_prepared_form_is_lost_is_executed_and_its_connection_replaced(
    change: str,
) -> None:
    """As of a migration while workers run, which changes the type of a column, or of a pooler."""
    statement = "SELECT number FROM counted WHERE number = %(number)s"

    def read(connection: pool.Connection) -> list[object]:
        row = pool.fetch_row(connection, statement, {"number": 1})
        own = connection.execute(statement, {"number": 1}, prepare=True).fetchone()
        return [row, own, connection.info.backend_pid]

    with pool.open_own() as owner:
        owner.execute("CREATE TABLE counted (number int)")
        try:
            owner.execute("INSERT INTO counted VALUES (1)")
            with pool.pooled() as connection:
                before = read(connection)
                (connection if change.startswith("D") else owner).execute(change, prepare=False)
                assert read(connection) == before == [(1,), (1,), connection.info.backend_pid]
            with pool.pooled() as connection:
                assert read(connection)[:2] == before[:2]
                assert connection.info.backend_pid != before[2]
        finally:
            owner.execute("DROP TABLE counted")


@pytest.mark.usefixtures("transactional_db")
def test_a_waiting_caller_gets_the_returned_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "WAIT_SECONDS", 5.0)
    pool.close()
    with ThreadPoolExecutor(1) as callers, ExitStack() as held:
        for _ in range(CONNECTIONS):
            last = held.enter_context(pool.pooled())
        waiting = callers.submit(_backend)
        connections = pool._pool
        assert connections is not None
        until(lambda: connections.waiting or None, "the caller to wait")
        held.close()
        assert waiting.result() == last.info.backend_pid


def _backend() -> int:
    with pool.pooled() as connection:
        return connection.info.backend_pid


@pytest.mark.usefixtures("transactional_db")
def test_after_an_outage_no_caller_waits_for_the_pools_pause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    where = pool._read_parameters()
    monkeypatch.setattr(pool, "_read_parameters", lambda: where)
    monkeypatch.setattr(pool, "WAIT_SECONDS", 1.6)
    pool.close()
    socket = tmp_path / "socket"  # a way to Postgres that is not there yet
    there, where["host"] = where["host"], str(socket)
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError), pool.pooled():
            pass
    socket.symlink_to(there)
    assert _backend()
    pool.close()


@pytest.mark.usefixtures("transactional_db")
def test_a_forked_process_has_a_pool_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process finds itself with another id than the one that opened the pool."""
    with pool.pooled():
        before = pool._pool
    assert before is not None
    monkeypatch.setattr(before, "process", -1)
    try:
        with pool.pooled():
            assert pool._pool is not before
    finally:
        before.close()
        pool.close()
