"""Many runs may wait in a process; few are worked on at once, and none of them keeps a connection of Django's."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

from django.db import connections

from runtime.advance import advance
from runtime.ports import ModelAnswer, ModelRequest
from runtime.seats import Seats
from tests.fakes.ports import FakeTool, ask
from tests.runtime.conftest import MakeBench

WAITING = 12


def test_a_run_that_waits_lets_others_sit_and_sits_again_afterwards() -> None:
    two, waiting, go_on = Seats(2), threading.Event(), threading.Event()

    def wait() -> None:
        with two.taken(), two.left():
            waiting.set()
            go_on.wait(10)

    with ThreadPoolExecutor(3) as pool:
        waits = pool.submit(wait)
        assert waiting.wait(10)
        with two.taken(), two.taken():  # both are free
            go_on.set()
            assert not waits.done()  # it cannot sit down yet
        waits.result(10)


def test_runs_that_wait_for_their_model_hold_no_seat_and_no_connection(rig: MakeBench) -> None:
    all_wait = threading.Barrier(WAITING)

    def slow(request: ModelRequest) -> ModelAnswer:
        all_wait.wait(30)  # or none of them is answered
        return ask(("t", {}))

    desk = rig({"a": slow}, t=FakeTool(gated=True))
    bench = replace(desk.bench, seats=Seats(2))
    runs = [desk.start("a") for _ in range(WAITING)]

    def work(run: UUID) -> bool:
        advance(run, bench)
        return any(one.connection for one in connections.all(initialized_only=True))

    with ThreadPoolExecutor(WAITING) as pool:
        assert not any(pool.map(work, runs))
    assert [len(desk.open_gates(run)) for run in runs] == [1] * WAITING
