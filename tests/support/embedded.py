"""A Postgres for the tests themselves, unless DATABASE_URL names one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.test import TransactionTestCase

from config.local.servers import postgres
from tests.support import servers


@contextmanager
def database(folder: Path, place: Path) -> Iterator[str]:
    """Its URL. The account of the servers can reach `folder`, and `place` is its own."""
    if given := os.environ.get("DATABASE_URL"):
        yield given
        return
    os.environ["SIGNOFF_UNSAFE_POSTGRES"] = "yes"  # for the workers that tests start on it
    cluster = servers.cluster(folder, place)
    with servers.postgres_of(cluster, folder, postgres.FAST):
        yield cluster.url()


# What migrations and flush write themselves. A flush puts them back if a test has changed them. Groups are no part of
# this: they are made with the first person in them, so a flush would follow every test with people.
KEPT = ("django_content_type", "auth_permission")

_KEPT_NOW = " UNION ALL ".join(
    f"SELECT md5(string_agg(t::text, ',' ORDER BY id)) FROM {table} t" for table in KEPT
)

# The locks wait, as TRUNCATE does, for every transaction that a thread of the test has left open. A file without pages
# has no rows, so most tables cost no more than that look.
# As a replica, no trigger refuses to delete append-only rows, and foreign keys need no order.
_EMPTY = f"""
SET LOCAL session_replication_role = replica;
DO $$
DECLARE
    tables regclass[] := ARRAY(
        SELECT oid FROM pg_class
        WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
          AND relname NOT IN ('django_migrations', {", ".join(f"'{table}'" for table in KEPT)})
        ORDER BY oid
    );
    one regclass;
BEGIN
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', array_to_string(tables, ','));
    FOR one IN
        SELECT oid FROM pg_class
        WHERE oid = ANY(tables) AND (relkind = 'p' OR pg_relation_size(oid) > 0)
    LOOP
        EXECUTE format('DELETE FROM %s', one);
    END LOOP;
END $$
"""


@contextmanager
def emptied_quickly() -> Iterator[None]:
    """Makes tests that committed leave empty tables, faster than TRUNCATE does."""
    flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]
    pristine: list[str] = []

    def empty(case: TransactionTestCase) -> None:
        if not pristine or _kept() != pristine:
            flush(case)  # leaves the tables of models that Django does not manage
            pristine[:] = _kept()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_EMPTY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty)
        yield


def _kept() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(_KEPT_NOW)
        return [row[0] for row in cursor.fetchall()]
