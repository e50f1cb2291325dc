"""The number of transactional calls that one process runs at once."""

import threading
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.db import connection

from runtime.core.enums import EffectClass
from runtime.execution.effects.running import EffectFinished, RunningEffect
from runtime.execution.effects.transactional import transact
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult
from runtime.store import pool

MAX_CONNECTIONS = pool.DJANGOS_OF_A_WORKER - 1


def _effect(submit: Callable[[EffectFinished], None]) -> RunningEffect:
    return RunningEffect(
        request=ToolRequest(
            run=uuid4(),
            frame="0",
            call="c1.0",
            attempt=1,
            agent="a",
            tool="pay",
            args={},
            key="k",
            deadline=60.0,
            effect=EffectClass.TRANSACTIONAL,
        ),
        submit=submit,
    )


@pytest.mark.django_db(transaction=True)
def test_transactional_calls_leave_a_connection_to_their_runs() -> None:
    begun, go = threading.Semaphore(0), threading.Event()
    outcomes: list[Outcome | None] = []

    def perform(request: ToolRequest) -> Outcome:
        begun.release()
        assert go.wait(60)
        return ToolFailure(error="enough")

    def call() -> None:
        outcomes.append(transact(_effect(_nothing_comes), perform))

    threads = [threading.Thread(target=call) for _ in range(MAX_CONNECTIONS + 1)]
    for thread in threads:
        thread.start()
    for _ in range(MAX_CONNECTIONS):
        assert begun.acquire(timeout=60)
    one_more = begun.acquire(timeout=1)  # as long as one that is not held back could need
    go.set()
    for thread in threads:
        thread.join()
    assert not one_more
    assert outcomes == [ToolFailure(error="enough")] * len(threads)


@pytest.mark.django_db(transaction=True)
def test_a_call_whose_deadline_passes_while_waiting_is_not_made() -> None:
    made: list[ToolRequest] = []

    def perform(request: ToolRequest) -> Outcome:
        made.append(request)
        return ToolResult(value="made")

    late = _effect(_nothing_comes)
    assert late.settle()  # by the deadline
    transact(late, perform)
    assert not made


@pytest.mark.django_db(transaction=True)
def test_a_result_after_the_deadline_is_rolled_back_and_not_submitted() -> None:
    late = _effect(_nothing_comes)

    def perform(request: ToolRequest) -> Outcome:
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE too_late ()")
        assert late.settle()  # by the deadline
        return ToolResult(value="too late")

    assert transact(late, perform) == ToolResult(value="too late")
    assert "too_late" not in connection.introspection.table_names()


def _nothing_comes(message: EffectFinished) -> None:
    raise AssertionError(message)
