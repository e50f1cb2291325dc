"""The hint of a run that a process keeps goes to the queue of that process, as long as it listens."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from django.db import transaction

from config import worker
from runtime.broker import dispatch, sticky_queue
from runtime.control.transaction import notify
from tests.support.people import until


@pytest.fixture
def broker(live_broker: str, monkeypatch: pytest.MonkeyPatch) -> Iterator["redis.Redis"]:
    """Yield a client of the broker, whose queues are empty."""
    monkeypatch.setattr(dispatch, "_thread", None)
    monkeypatch.setattr(dispatch, "_own_queue", None)
    monkeypatch.setattr(transaction, "on_commit", lambda send: send())
    dispatch._broker.cache_clear()
    client = redis.Redis.from_url(live_broker, decode_responses=True)
    client.delete(*dispatch.QUEUES)
    yield client
    client.delete(*dispatch.QUEUES)
    client.close()


@pytest.fixture
def kept(broker: "redis.Redis") -> UUID:
    """Return a run that this process keeps."""
    run = uuid4()
    own = dispatch.open_own_queue()
    sticky_queue.listen(broker, own)
    dispatch.keep(run)
    _flush()
    return run


def test_a_signal_sends_its_hint_to_the_process_that_keeps_the_run(
    broker: "redis.Redis", kept: UUID
) -> None:
    notify(kept)
    _flush()
    assert _counts(broker) == {"own": 1, dispatch.RESUMED: 0}
    assert 0 < int(broker.ttl(_own())) <= sticky_queue.UNREAD_SECONDS


def test_the_hint_of_another_run_goes_to_all_workers(broker: "redis.Redis", kept: UUID) -> None:
    notify(uuid4())
    _flush()
    assert _counts(broker) == {"own": 0, dispatch.RESUMED: 1}


def test_a_process_that_listens_no_more_gets_no_hint(broker: "redis.Redis", kept: UUID) -> None:
    sticky_queue.leave(broker, _own())
    notify(kept)
    _flush()
    assert _counts(broker) == {"own": 0, dispatch.RESUMED: 1}


def test_a_process_counts_as_listening_for_three_seconds(broker: "redis.Redis", kept: UUID) -> None:
    (name,) = broker.keys(f"abeyance:listens:{_own()}")
    assert 0 < int(broker.pttl(name)) <= 3_000


def test_the_sweeper_and_other_workers_hint_to_all_workers(
    broker: "redis.Redis", kept: UUID
) -> None:
    dispatch.send_all([(kept, dispatch.RESUMED)])
    dispatch.dispatch(kept)
    _flush()
    assert _counts(broker) == {"own": 0, dispatch.RESUMED: 2}


def test_a_process_listens_until_it_drains(broker: "redis.Redis") -> None:
    own = dispatch.open_own_queue()
    draining: list[str] = []
    dispatch.start_listening(lambda: bool(draining))
    until(lambda: broker.exists(f"abeyance:listens:{own}") or None, "the process to listen")
    draining.append("now")
    until(lambda: not broker.exists(f"abeyance:listens:{own}") or None, "it to listen no more", 2.5)


def test_a_process_without_a_queue_keeps_no_run(
    broker: "redis.Redis", caplog: pytest.LogCaptureFixture
) -> None:
    run = uuid4()
    dispatch.keep(run)
    dispatch.dispatch(run, dispatch.STICKY)
    _flush()
    assert broker.llen(dispatch.RESUMED) == 1
    assert not broker.exists(f"abeyance:kept:{run}")
    assert not caplog.records


@pytest.mark.parametrize(
    ("queues", "has_own"), [("resumed,runs", True), ("isolated", False), ("runs", False)]
)
def test_a_worker_of_resumed_runs_has_a_queue_of_its_own(
    queues: str, has_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    app = SimpleNamespace(conf=SimpleNamespace(task_queues={}))

    def made(*, queues: list[str], **_: Any) -> Any:
        read.extend(queues)
        return SimpleNamespace(start=lambda: None, exitcode=0)

    app.Worker = made
    monkeypatch.setattr(worker, "app", app)
    monkeypatch.setattr(worker, "_share_connections", lambda: None)
    monkeypatch.setattr(dispatch, "_own_queue", None)
    worker.main(["--queues", queues])
    assert (dispatch._own_queue is not None) is has_own
    own = [dispatch._own_queue] if has_own else []
    assert read == [*queues.split(","), *own]
    assert list(app.conf.task_queues) == own


def _own() -> str:
    assert dispatch._own_queue is not None
    return dispatch._own_queue


def _flush() -> None:
    assert dispatch._thread is not None
    dispatch._thread.flush()


def _counts(broker: "redis.Redis") -> dict[str, int]:
    return {"own": int(broker.llen(_own())), dispatch.RESUMED: int(broker.llen(dispatch.RESUMED))}
