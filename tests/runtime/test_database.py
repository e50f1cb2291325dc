"""The engine's pool after Postgres was away."""

from contextlib import ExitStack

import psycopg_pool.pool
import pytest

from runtime import database

CONNECTIONS = 5


@pytest.fixture
def dead(transactional_db: None) -> None:
    """Every connection of the pool has lost its server."""
    database.close()
    with ExitStack() as held:
        pids = [held.enter_context(database.pooled()).info.backend_pid for _ in range(CONNECTIONS)]
    with database.own() as own:
        own.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s::int[]) AS pid", (pids,)
        )


def test_one_dead_connection_is_the_end_of_all_dead_ones(
    dead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(psycopg_pool.pool, "sleep", pauses.append)
    for _ in range(CONNECTIONS):
        with database.pooled() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert len(pauses) <= 1
