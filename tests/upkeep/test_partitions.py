"""Partitions of the journal: created in advance, and dropped when empty, without blocking other transactions."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest

from runtime.reads import workers
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import journal
from runtime.upkeep import journals

LONG_AGO = datetime(2019, 3, 15, tzinfo=UTC)
OLD = "runtime_journalentry_2019_03"


@pytest.fixture
def own(transactional_db: None) -> Iterator[Connection]:
    """A month of 2019 beside those of today."""
    connection = pool.open_own()
    connection.execute(
        f"""
        CREATE TABLE {OLD} PARTITION OF runtime_journalentry FOR VALUES
        FROM ('01693668-f400-0000-0000-000000000000') TO ('0169d60d-2000-0000-0000-000000000000')
        """
    )
    yield connection
    connection.execute(f"DROP TABLE IF EXISTS {OLD}")
    connection.close()


def entry(connection: Connection, at: datetime) -> UUID:
    """An entry of a run that began then."""
    row = connection.execute("SELECT signoff_uuid7(%s)", (at,)).fetchone()
    assert row is not None
    run: UUID = row[0]
    connection.execute(
        "INSERT INTO runtime_journalentry VALUES (%s, 1, '', '', '', gen_random_uuid())", (run,)
    )
    return run


def months(connection: Connection) -> list[str]:
    rows = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'runtime_journalentry'::regclass ORDER BY 1"
    )
    return [name for (name,) in rows.fetchall()]


def test_a_month_that_is_over_and_empty_is_dropped_and_no_other(own: Connection) -> None:
    before = months(own)
    run = entry(own, LONG_AGO)
    assert own.execute(f"SELECT count(*) FROM {OLD}").fetchone() == (1,)
    assert journals.drop_empty_partitions(own) == []
    journal.delete_until(own, run, until=1)
    with pool.open_own() as other, other.transaction():
        other.execute("SELECT count(*) FROM runtime_journalentry")
        assert journals.drop_empty_partitions(own) == []  # or every step would wait behind the lock
    assert journals.drop_empty_partitions(own) == [OLD]
    assert months(own) == [name for name in before if name != OLD]
    assert len(months(own)) == 4  # this month, two ahead, and the one for the rest
    run = entry(own, LONG_AGO)
    assert own.execute("SELECT count(*) FROM runtime_journalentry_default").fetchone() == (1,)
    journal.delete_until(own, run, until=1)


def test_a_month_is_made_although_entries_of_it_are_in_default(own: Connection) -> None:
    """As after three months offline: the web starts a run before the first upkeep."""
    for name in months(own):
        if name not in (OLD, "runtime_journalentry_default"):
            own.execute(f"DROP TABLE {name}")
    run = entry(own, datetime.now(UTC))
    assert not workers.has_month()
    journals.make_partitions(own)
    assert workers.has_month()
    ((name,),) = own.execute(
        "SELECT tableoid::regclass::text FROM runtime_journalentry WHERE run_id = %s", (run,)
    ).fetchall()
    assert name == f"runtime_journalentry_{datetime.now(UTC):%Y_%m}"
    with pytest.raises(psycopg.errors.UniqueViolation):  # its key is that of every other month
        own.execute(
            "INSERT INTO runtime_journalentry VALUES (%s, 1, '', '', '', gen_random_uuid())", (run,)
        )


def test_making_a_month_waits_for_no_step(own: Connection) -> None:
    (last,) = months(own)[-2:-1]
    own.execute(f"DROP TABLE {last}")
    with pool.open_own() as other, other.transaction():
        entry(other, datetime.now(UTC))
        journals.make_partitions(own)
        assert last in months(own)
        other.execute("DELETE FROM runtime_journalentry")
