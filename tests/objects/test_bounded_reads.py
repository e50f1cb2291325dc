"""Reads of a store that hangs end in time, and hold a bounded number of threads."""

import threading
from collections.abc import Iterator

import pytest

from runtime.errors import ObjectStoreDown
from runtime.store.object_stores import stores
from runtime.store.object_stores.stores import READS, RETRY_SECONDS, BoundedReads


class Hanging:
    """A store that answers reads once it is released, and counts them."""

    def __init__(self) -> None:
        self.began, self.released = threading.Event(), threading.Event()
        self.reads = 0
        self.problem: Exception | None = None

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes | None:
        self.reads += 1
        self.began.set()
        self.released.wait()
        if self.problem is not None:
            raise self.problem
        return key.encode()

    def put(self, key: str, data: bytes) -> None: ...

    def swap(self, key: str, data: bytes, *, before: bytes | None) -> bool:
        return False

    def delete(self, key: str) -> None: ...

    def prepare(self) -> None: ...

    def check(self) -> None: ...


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    store = Hanging()
    yield store
    store.released.set()


def test_a_store_that_hangs_is_asked_once_in_a_period(hanging: Hanging) -> None:
    now = [0.0]
    store = BoundedReads(hanging, seconds=0.01, clock=lambda: now[0])
    for problem in ("did not answer within", "hangs", "hangs"):
        with pytest.raises(ObjectStoreDown, match=problem):
            store.get("a")
    assert hanging.reads == 1
    now[0] = RETRY_SECONDS
    for problem in ("did not answer within", "hangs"):
        with pytest.raises(ObjectStoreDown, match=problem):
            store.get("a")
    assert hanging.reads == 2


def test_readers_continue_when_the_store_answers_again(hanging: Hanging) -> None:
    now = [0.0]
    store = BoundedReads(hanging, seconds=0.01, clock=lambda: now[0])
    with pytest.raises(ObjectStoreDown):
        store.get("a")
    hanging.released.set()
    now[0] = RETRY_SECONDS
    store = _patient(store)
    assert [store.get("a"), store.get("b")] == [b"a", b"b"]


def test_one_reader_alone_tries_a_store_that_hung(hanging: Hanging) -> None:
    now = [0.0]
    store = BoundedReads(hanging, seconds=0.01, clock=lambda: now[0])
    with pytest.raises(ObjectStoreDown):
        store.get("a")
    store, now[0] = _patient(store), RETRY_SECONDS
    hanging.began.clear()
    reader = threading.Thread(target=store.get, args=("a",))
    reader.start()
    hanging.began.wait()
    with pytest.raises(ObjectStoreDown, match="hangs"):
        store.get("b")
    hanging.released.set()
    reader.join()
    assert (hanging.reads, store.get("b")) == (2, b"b")


def test_no_more_reads_hang_than_there_are_turns(hanging: Hanging) -> None:
    now = [0.0]
    store = BoundedReads(hanging, seconds=0.01, turn_seconds=0.01, clock=lambda: now[0])
    for _ in range(READS + 2):
        now[0] += RETRY_SECONDS
        with pytest.raises(ObjectStoreDown):
            store.get("a")
    assert hanging.reads == READS


@pytest.mark.parametrize("problem", [ObjectStoreDown("no"), ValueError("link"), TimeoutError("x")])
def test_an_error_of_the_store_is_raised_and_no_hang(hanging: Hanging, problem: Exception) -> None:
    hanging.released.set()
    hanging.problem = problem
    store = BoundedReads(hanging)
    for _ in range(READS + 1):
        with pytest.raises(type(problem), match=str(problem)):
            store.get("a")
    hanging.problem = None
    assert store.get("a") == b"a"


def _patient(store: BoundedReads) -> BoundedReads:
    """The same store with the time of a real one, so that a busy machine is no hang."""
    store._seconds = stores.SECONDS
    return store
