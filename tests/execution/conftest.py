"""A tool call that was started, and a table of the tests' own, which transactional tools write to."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from django.db import connection

from runtime.core.values.enums import EffectClass
from runtime.execution.effects.running import EffectFinished, RunningEffect
from runtime.ports.effects import ToolRequest, ToolResult
from runtime.store import pool
from tests.support.engine import MakeBench


def running(submit: Callable[[EffectFinished], None] = lambda _: None) -> RunningEffect:
    """A call of a transactional tool that was started."""
    request = ToolRequest(
        run=uuid4(), frame="0", call="c1.0", attempt=1, agent="a", tool="t", args={}, key="k",
        deadline=60.0, effect=EffectClass.TRANSACTIONAL,
    )  # fmt: skip
    return RunningEffect(request=request, submit=submit)


class Ledger:
    """The attempts of calls whose writes were committed."""

    def write(self, request: ToolRequest) -> None:
        """Write as a tool does, on Django's connection."""
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO ledger VALUES (%s)", [request.attempt])

    def keep(self, request: ToolRequest) -> ToolResult:
        """Write, and return a result."""
        self.write(request)
        return ToolResult(value="kept")

    def attempts(self) -> list[int]:
        with pool.open_own() as own:
            return [number for (number,) in own.execute("SELECT * FROM ledger ORDER BY 1")]


@pytest.fixture
def ledger(rig: MakeBench) -> Iterator[Ledger]:
    with pool.open_own() as own:
        own.execute("CREATE TABLE ledger (attempt integer)")
    yield Ledger()
    with pool.open_own() as own:
        own.execute("DROP TABLE ledger")
