"""A COMMIT whose answer was cut off: the worker finds out whether it happened, even if it is still under way."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from runtime.core.enums import EffectClass
from runtime.models import Gate
from runtime.ports.approvals import Part
from runtime.ports.effects import Outcome, ToolRequest, ToolResult
from runtime.store import pool, steps
from tests.execution.conftest import Ledger
from tests.support.engine import MakeBench, types
from tests.support.fake_ports import FakeTool, ask, say, turns

BLOCKED = """
    SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))
"""


class Cut:
    """Cuts off the answer to a thread's next COMMIT; `late` lets it end only once a worker waits for it."""

    def __init__(self, late: bool) -> None:
        self.late = late
        self.done = threading.Event()
        self._armed: int | None = None

    def arm(self) -> None:
        if not self.done.is_set():
            self._armed = threading.get_ident()

    def commit(self, wrapper: BaseDatabaseWrapper, real: Callable[[Any], None]) -> None:
        if threading.get_ident() != self._armed or self.done.is_set():
            real(wrapper)
            return
        self.done.set()
        aside: psycopg.Connection[Any] = wrapper.connection
        if self.late:
            wrapper.connection = None
            threading.Thread(target=_commit_when_waited_for, args=(aside,)).start()
        else:
            aside.commit()
            aside.close()
        raise OperationalError("the connection was lost")


def _commit_when_waited_for(aside: psycopg.Connection[Any]) -> None:
    with pool.own() as own:
        while own.execute(BLOCKED, (aside.info.backend_pid,)).fetchone() == (0,):
            pass
    aside.commit()
    aside.close()


@pytest.fixture(params=[False, True], ids=["committed", "under way"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cut:
    found, real = Cut(request.param), BaseDatabaseWrapper._commit  # type: ignore[attr-defined]
    monkeypatch.setattr(BaseDatabaseWrapper, "_commit", lambda self: found.commit(self, real))
    return found


def test_an_unknown_commit_opens_its_gate_once(
    rig: MakeBench, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run, real = desk.start("a"), steps.commit

    def commit(connection: Any, step: steps.Step, *lent: Any, prepare: bool) -> steps.Result:
        if not step.opened or cut.done.is_set():
            return real(connection, step, *lent, prepare=prepare)
        cut.done.set()
        aside = psycopg.connect(connection.info.dsn, password=connection.info.password)
        real(aside, step, *lent, prepare=prepare)
        if cut.late:
            threading.Thread(target=_commit_when_waited_for, args=(aside,)).start()
        else:
            aside.commit()
            aside.close()
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(steps, "commit", commit)
    assert desk.advance(run).status == "suspended"
    assert cut.done.is_set()
    assert [snapshot.gate for snapshot in desk.approvals.snapshots] == _gates(run)
    assert types(run)[-2:] == ["ModelReplied", "GateOpened"]
    assert len(desk.effects.models) == 1


def test_an_unknown_commit_keeps_its_tools_writes_once(
    rig: MakeBench, cut: Cut, ledger: Ledger
) -> None:
    def body(request: ToolRequest) -> Outcome:
        ledger.write(request)
        cut.arm()
        return ToolResult(value="kept")

    tool = FakeTool(effect=EffectClass.TRANSACTIONAL, body=body)
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)
    run = desk.advance(desk.start("a"))
    assert cut.done.is_set()
    assert run.status == "completed"
    assert (ledger.attempts(), len(desk.effects.calls)) == ([1], 1)
    assert types(run.id)[-4:] == ["ToolStarted", "ToolReturned", "ModelReplied", "Completed"]


def _gates(run: UUID) -> list[UUID]:
    return list(Gate.objects.filter(run=run).values_list("id", flat=True))


def test_a_gate_is_built_again_after_a_concurrent_change(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run, real, taken = desk.start("a"), desk.approvals.open, list[Part]()
    desk.advance(desk.start("a"))  # whose gate is there already

    def overtaken(*args: Any, **kwargs: Any) -> tuple[Part, ...]:
        real(*args, **kwargs)
        sql = "INSERT INTO runtime_gate SELECT g.* FROM run, runtime_gate g"
        if taken:
            return ()
        taken.append(Part(name="lent", sql=sql, parameters={}, overtaken="runtime_gate_pkey"))
        return tuple(taken)

    monkeypatch.setattr(desk.approvals, "open", overtaken)
    assert desk.advance(run).status == "suspended"
    assert len(taken) == len(_gates(run)) == 1
    assert types(run)[-2:] == ["ModelReplied", "GateOpened"]
