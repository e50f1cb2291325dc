"""A table of the tests' own, which transactional tools write to."""

from collections.abc import Iterator

import pytest
from django.db import connection

from runtime.ports.effects import ToolRequest
from runtime.store import pool
from tests.support.engine import MakeBench


class Ledger:
    """The attempts of calls whose writes were committed."""

    def write(self, request: ToolRequest) -> None:
        """Write as a tool does, on Django's connection."""
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO ledger VALUES (%s)", [request.attempt])

    def attempts(self) -> list[int]:
        with pool.own() as own:
            return [number for (number,) in own.execute("SELECT * FROM ledger ORDER BY 1")]


@pytest.fixture
def ledger(rig: MakeBench) -> Iterator[Ledger]:
    with pool.own() as own:
        own.execute("CREATE TABLE ledger (attempt integer)")
    yield Ledger()
    with pool.own() as own:
        own.execute("DROP TABLE ledger")
