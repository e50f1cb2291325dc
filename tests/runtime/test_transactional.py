"""How many transactional calls of one process are under way at once."""

import threading
from uuid import uuid4

import pytest

from runtime.core.decisions import EffectClass
from runtime.execution.effects.transactional import Handoff, transact
from runtime.ports import Outcome, ToolFault, ToolRequest
from runtime.store import pool

MOST = pool.DJANGOS_OF_A_WORKER - 1


def _handoff() -> Handoff:
    return Handoff(
        ToolRequest(
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
        )
    )


@pytest.mark.django_db(transaction=True)
def test_transactional_calls_leave_one_connection_to_the_runs_they_wait_for() -> None:
    begun, go = threading.Semaphore(0), threading.Event()
    delivered: list[Handoff] = []

    def perform(request: ToolRequest) -> Outcome:
        begun.release()
        assert go.wait(60)
        return ToolFault(error="enough")

    threads = [
        threading.Thread(target=transact, args=[perform, _handoff(), delivered.append])
        for _ in range(MOST + 1)
    ]
    for thread in threads:
        thread.start()
    for _ in range(MOST):
        assert begun.acquire(timeout=60)
    one_more = begun.acquire(timeout=1)  # as long as one that is not held back could need
    go.set()
    for thread in threads:
        thread.join()
    assert not one_more
    assert [handoff.outcome for handoff in delivered] == [ToolFault(error="enough")] * len(threads)


@pytest.mark.django_db(transaction=True)
def test_a_call_whose_deadline_passed_while_it_waited_is_not_made() -> None:
    late, made, delivered = _handoff(), list[ToolRequest](), list[Handoff]()

    def perform(request: ToolRequest) -> Outcome:
        made.append(request)
        return ToolFault(error="made")

    assert late.take()  # by the deadline
    transact(perform, late, delivered.append)
    assert not made
    assert not delivered
