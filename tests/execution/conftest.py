"""A tool call that was started, and a table of the tests' own, which transactional tools write to.

Every state that a process of a rig keeps between two claims is compared with the one that its entries lead to.
"""

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID, uuid4

import pytest
from django.db import connection

from runtime.core.documents.codec import decode_entry
from runtime.core.run.continuation import Continuation
from runtime.core.run.reducer import make_initial_state, step
from runtime.core.values.enums import EffectClass
from runtime.execution.effects.running import EffectFinished, RunningEffect
from runtime.execution.worker import RecentRuns
from runtime.ports.effects import ToolRequest, ToolResult
from runtime.store import pool
from runtime.store.tables.journal import Row
from tests.support.calls import around
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


@pytest.fixture(autouse=True)
def kept_states(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(
        recent: RecentRuns, run: UUID, rows: Sequence[Row], read: object, now: Continuation
    ) -> None:
        if [position for position, *_ in rows] == list(range(1, now.position + 1)):
            folded = make_initial_state(run)
            for _position, body, mac, *_ in rows:
                entry = decode_entry(body)
                folded = step(folded, entry.events, head=mac, at=entry.at)
            assert now == folded

    if "rig" in request.fixturenames:
        around(monkeypatch, RecentRuns, "put", before=compare)


@pytest.fixture
def ledger(rig: MakeBench) -> Iterator[Ledger]:
    with pool.open_own() as own:
        own.execute("CREATE TABLE ledger (attempt integer)")
    yield Ledger()
    with pool.open_own() as own:
        own.execute("DROP TABLE ledger")
