"""Many runs may wait in a process; few are worked on at once, and connections are as many as those."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from runtime import database, seats
from runtime.advance import advance
from runtime.ports import ModelAnswer, ModelRequest
from runtime.seats import Seats
from tests.fakes.ports import FakeTool, ask
from tests.runtime.conftest import MakeBench

WAITING = 12


@pytest.fixture
def two(transactional_db: None) -> Iterator[Seats]:
    """Two seats, and no connection yet."""
    seats.close()
    yield Seats(2)
    seats.close()


def _backend() -> int:
    connection.ensure_connection()
    return int(connection.connection.info.backend_pid)


def test_threads_one_after_the_other_work_on_the_same_connection(two: Seats) -> None:
    def work() -> int:
        with two.taken():
            return _backend()

    found = []
    for _ in range(3):
        with ThreadPoolExecutor(1) as pool:  # a thread of its own each time
            found.append(pool.submit(work).result())
    assert len(set(found)) == 1


def test_a_thread_has_its_own_connection_back_afterwards(two: Seats) -> None:
    own = _backend()
    with two.taken() as seat:
        assert _backend() != own
        with seat.left():
            assert _backend() == own
    assert _backend() == own


def test_a_thread_that_had_none_has_none_afterwards(two: Seats) -> None:
    def work() -> list[object]:
        with two.taken():
            _backend()
        return list(connections.all(initialized_only=True))

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == []


def test_whoever_waits_lets_others_sit_and_sits_again_afterwards(two: Seats) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        with two.taken() as seat, seat.left():
            waiting.set()
            go_on.wait(10)

    with ThreadPoolExecutor(3) as pool:
        waits = pool.submit(wait)
        assert waiting.wait(10)
        with two.taken(), two.taken():  # both are free
            go_on.set()
            assert not waits.done()  # it cannot sit down yet
        waits.result(10)


def test_a_dead_connection_is_not_lent_twice(two: Seats) -> None:
    with two.taken():
        dead = _backend()
    with database.own() as own:
        own.execute("SELECT pg_terminate_backend(%s, 10000)", (dead,))
    with two.taken():
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        assert _backend() != dead


def test_a_connection_that_was_closed_without_djangos_knowing_is_opened_anew(two: Seats) -> None:
    with two.taken():
        dead = _backend()
        connection.connection.close()
    with two.taken():
        assert _backend() != dead


def test_a_seat_whose_connection_cannot_be_lent_is_free_again(
    two: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> BaseDatabaseWrapper:
        raise OSError

    def sit(*, first: bool) -> None:
        with monkeypatch.context() as patch:
            if first:
                patch.setattr(seats, "_lend", fail)
            with two.taken() as seat:
                patch.setattr(seats, "_lend", fail)
                with seat.left():
                    pass

    own = _backend()
    for first in (True, False):
        with pytest.raises(OSError):
            sit(first=first)
    assert _backend() == own
    assert two._free.qsize() == 2


def test_a_silent_connection_is_not_asked_whether_it_lives(
    two: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two.taken():
        known = _backend()
    asked = []

    def is_usable(wrapper: BaseDatabaseWrapper) -> bool:
        asked.append(wrapper)
        return True

    monkeypatch.setattr(type(connections["default"]), "is_usable", is_usable)
    with two.taken(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert _backend() == known
    assert asked == []


def test_runs_that_wait_for_their_model_hold_no_seat_and_those_that_suspend_share_connections(
    rig: MakeBench,
) -> None:
    seats.close()
    everybody = threading.Barrier(WAITING)

    def slow(request: ModelRequest) -> ModelAnswer:
        everybody.wait(30)  # or nobody is answered
        return ask(("t", {}))

    desk = rig({"a": slow}, t=FakeTool(gated=True))
    bench = replace(desk.bench, seats=Seats(2))
    runs = [desk.start("a") for _ in range(WAITING)]
    with ThreadPoolExecutor(WAITING) as pool:
        assert all(pool.map(lambda run: advance(run, bench), runs))
    assert [len(desk.open_gates(run)) for run in runs] == [1] * WAITING
    assert 1 <= len(seats._idle) <= 2
