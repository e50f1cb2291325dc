"""Empties the tables after a test that committed.

Django's flush truncates every table, which makes a file for each of some 200 relations and plans every prepared
statement again, and then writes all permissions and groups once more. Deleting a few rows costs a tenth of that.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction
from django.test import TransactionTestCase

# What migrations and flush write themselves. A flush puts them back if a test has changed them.
KEPT = ("django_content_type", "auth_permission", "auth_group", "auth_group_permissions")

_KEPT_NOW = " UNION ALL ".join(
    f"SELECT md5(string_agg(t::text, ',' ORDER BY id)) FROM {table} t" for table in KEPT
)

# The locks wait, as TRUNCATE does, for every transaction that a thread of the test has left open.
# As a replica, no trigger refuses to delete append-only rows, and foreign keys need no order.
_EMPTY = f"""
SET LOCAL session_replication_role = replica;
DO $$
DECLARE one regclass;
BEGIN
    FOR one IN
        SELECT oid FROM pg_class
        WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
          AND relname NOT IN ('django_migrations', {", ".join(f"'{table}'" for table in KEPT)})
        ORDER BY oid
    LOOP
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', one);
        EXECUTE format('DELETE FROM %s', one);
    END LOOP;
END $$
"""


@contextmanager
def quickly() -> Iterator[None]:
    """Makes tests that committed leave empty tables, faster than TRUNCATE does."""
    flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]
    pristine: list[str] = []

    def empty(case: TransactionTestCase) -> None:
        if not pristine or _kept() != pristine:
            flush(case)
            pristine[:] = _kept()
            return
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_EMPTY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty)
        yield


def _kept() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(_KEPT_NOW)
        return [row[0] for row in cursor.fetchall()]
