"""A connection of the test's own."""

from collections.abc import Iterator

import pytest

from runtime.store import pool
from runtime.store.pool import Connection


@pytest.fixture
def own(transactional_db: None) -> Iterator[Connection]:
    with pool.own() as one:
        yield one
