"""Transactional tools: their writes commit with the entry or not at all, and each process runs few at once."""

import threading

import pytest
from django.db import connection
from pytest_django import Settings

from runtime.core.values.call_options import RetryPolicy
from runtime.core.values.enums import EffectClass
from runtime.execution.effects.running import EffectFinished
from runtime.execution.effects.transactional import transact
from runtime.models import Run
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult, Unknown
from runtime.store import pool
from tests.execution.conftest import Ledger, running
from tests.support.engine import MakeBench, Rig, events, lose, types
from tests.support.fake_ports import FakeTool, ToolBody, ask, say, turns
from tests.support.threads import aside, in_thread

MAX_CONNECTIONS = pool.DJANGOS_OF_A_WORKER - 1
ONCE = RetryPolicy(attempts=1, base=0.0, ceiling=0.0)


def writing(
    rig: MakeBench, body: ToolBody, *, calls: int = 1, deadline: float = 30.0, retry: RetryPolicy
) -> Rig:
    """An agent that makes as many calls of a transactional tool at once."""
    tool = FakeTool(effect=EffectClass.TRANSACTIONAL, body=body, deadline=deadline, retry=retry)
    proposed = ask(*(("t", {"n": n}) for n in range(calls)))
    return rig({"a": turns(proposed, say("done"))}, t=tool)


def test_a_transactional_tool_commits_with_its_result(rig: MakeBench, ledger: Ledger) -> None:
    desk = writing(rig, ledger.keep, calls=2, retry=ONCE)
    run = desk.advance(desk.start("a"))
    assert run.status == "completed"
    assert ledger.attempts() == [1, 1]
    assert types(run.id).count("ToolReturned") == 2


@pytest.mark.parametrize("end", ["it raised", "another worker has the run"])
def test_a_failed_attempt_rolls_back_and_is_repeated(
    rig: MakeBench, ledger: Ledger, settings: Settings, end: str
) -> None:
    def body(request: ToolRequest) -> Outcome:
        kept = ledger.keep(request)
        if request.attempt > 1:
            return kept
        if end == "it raised":
            return Unknown(error="broke")
        aside(lambda: Run.objects.filter(id=request.run).update(epoch=99))
        return ToolResult(value="too late")

    desk = writing(rig, body, retry=RetryPolicy(attempts=3, base=0.0, ceiling=0.0))
    run = desk.start("a")
    if end != "it raised":
        assert desk.advance(run).status == "running"
        assert ledger.attempts() == []
        settings.SIGNOFF_LEASE_SECONDS = 1.0
        lose(run)
    assert desk.advance(run).status == "completed"
    assert ledger.attempts() == [2]


@pytest.mark.usefixtures("short_lease")
def test_an_overrunning_transactional_tool_leaves_one_row(rig: MakeBench, ledger: Ledger) -> None:
    """The first worker's tool goes on long after another worker has made the call anew and has ended the run."""
    written, go_on = threading.Event(), threading.Event()

    def late(request: ToolRequest) -> Outcome:
        ledger.write(request)
        written.set()
        assert go_on.wait(60)
        threading.Event().wait(request.deadline)  # longer than it may take
        return ToolResult(value="too late")

    slow, quick = (writing(rig, body, deadline=2.0, retry=ONCE) for body in (late, ledger.keep))
    run = slow.start("a")
    first = in_thread(lambda: slow.advance(run))
    assert written.wait(60)
    slow.heartbeat.stop()  # its lease is not renewed any more
    lose(run)
    assert quick.advance(run).status == "completed"
    assert ledger.attempts() == [2]
    go_on.set()
    first.join(60)
    assert not first.is_alive()
    slow.context.effect_pool.close()
    assert ledger.attempts() == [2]
    assert [event["result"] for event in events(run) if event["type"] == "ToolReturned"] == ["kept"]


def test_a_transactional_tool_that_hangs_frees_its_run(
    rig: MakeBench, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.execution.effects.pool.DEADLINE_SLACK", 0.0)
    go_on = threading.Event()

    def body(request: ToolRequest) -> Outcome:
        ledger.write(request)
        go_on.wait(60)
        return ToolResult(value="too late")

    desk = writing(rig, body, deadline=1.0, retry=ONCE)
    run = desk.advance(desk.start("a"))
    assert not go_on.is_set()
    assert (run.status, ledger.attempts()) == ("completed", [])
    assert desk.heard()["content"] == "it did not end within 1 s, and was rolled back"
    with pool.open_own() as own, own.transaction():
        own.execute("SET LOCAL lock_timeout = '5s'")
        own.execute("LOCK TABLE ledger")  # the tool's transaction and its locks are gone
    go_on.set()
    desk.context.effect_pool.close()
    assert ledger.attempts() == []
    assert "ToolReturned" not in types(run.id)


# The calls of one process


def nothing_comes(message: EffectFinished) -> None:
    raise AssertionError(message)


@pytest.mark.django_db(transaction=True)
def test_transactional_calls_leave_a_connection_to_their_runs() -> None:
    begun, go = threading.Semaphore(0), threading.Event()
    outcomes: list[Outcome | None] = []

    def perform(request: ToolRequest) -> Outcome:
        begun.release()
        assert go.wait(60)
        return ToolFailure(error="enough")

    threads = [
        in_thread(lambda: outcomes.append(transact(running(nothing_comes), perform)))
        for _ in range(MAX_CONNECTIONS + 1)
    ]
    for _ in range(MAX_CONNECTIONS):
        assert begun.acquire(timeout=60)
    one_more = begun.acquire(timeout=1)  # as long as one that is not held back could need
    go.set()
    for thread in threads:
        thread.join()
    assert not one_more
    assert outcomes == [ToolFailure(error="enough")] * len(threads)


@pytest.mark.django_db(transaction=True)
def test_a_result_after_the_deadline_is_rolled_back_and_no_call_is_made_after_it() -> None:
    late, made = running(nothing_comes), list[ToolRequest]()

    def perform(request: ToolRequest) -> Outcome:
        made.append(request)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE too_late ()")
        assert late.settle()  # by the deadline
        return ToolResult(value="too late")

    assert transact(late, perform) == ToolResult(value="too late")
    assert "too_late" not in connection.introspection.table_names()
    transact(late, perform)
    assert len(made) == 1
