"""The hint of a run that a process keeps goes to the queue of that process, as long as it listens."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from django.db import transaction

from config import worker
from config.celery import app
from runtime import tasks
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
    (name,) = broker.keys(f"abeyance:listens:{_own()}")
    assert 0 < int(broker.pttl(name)) <= 3_000
    notify(kept)
    notify(uuid4())
    _flush()
    assert _counts(broker) == {"own": 1, dispatch.RESUMED: 1}
    assert 0 < int(broker.ttl(_own())) <= sticky_queue.UNREAD_SECONDS
    dispatch.dispatch(kept)
    dispatch.send_all([(kept, dispatch.RESUMED)])
    _flush()
    assert _counts(broker) == {"own": 1, dispatch.RESUMED: 3}  # of other workers and the sweeper


def test_hints_that_a_process_leaves_unread_go_to_all_workers(
    broker: "redis.Redis", kept: UUID
) -> None:
    notify(kept)
    notify(kept)
    _flush()
    unread = broker.lrange(_own(), 0, -1)
    dispatch.stop_listening()
    assert broker.lrange(dispatch.RESUMED, 0, -1) == unread
    assert len(unread) == 2
    notify(kept)
    _flush()
    assert _counts(broker) == {"own": 0, dispatch.RESUMED: 3}


def test_a_broker_that_forbids_scripts_gets_hints_for_all_workers(
    broker: "redis.Redis", kept: UUID
) -> None:
    broker.acl_setuser("default", enabled=True, commands=["-eval"])
    try:
        dispatch.send_all([(kept, dispatch.STICKY), (uuid4(), dispatch.NEW)])
    finally:
        broker.acl_setuser("default", enabled=True, commands=["+eval"])
    assert _counts(broker) == {"own": 0, dispatch.RESUMED: 1}
    assert broker.llen(dispatch.NEW) == 1


def test_a_process_listens_until_it_drains(broker: "redis.Redis") -> None:
    own = dispatch.open_own_queue()
    draining: list[str] = []
    dispatch.start_listening(lambda: bool(draining))
    until(lambda: broker.exists(f"abeyance:listens:{own}") or None, "the process to listen")
    draining.append("now")
    until(lambda: not broker.exists(f"abeyance:listens:{own}") or None, "it to listen no more", 2.5)
    sticky_queue.listen(broker, own)
    tasks.stop()
    assert not broker.exists(f"abeyance:listens:{own}")


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


def test_nothing_is_left_in_the_broker_of_a_queue_that_celery_read(
    broker: "redis.Redis",
) -> None:
    queues = app.conf.task_queues
    name = worker._own_queue()
    declared = app.amqp.Queues(app.conf.task_queues)
    app.conf.task_queues = queues
    with app.connection_for_read() as connection, connection.channel() as channel:
        consumer = app.amqp.TaskConsumer(channel, [declared[name], declared[dispatch.RESUMED]])
        read = list[object]()
        consumer.register_callback(lambda _, message: read.append(message))
        consumer.consume()
        dispatch.send_all([(uuid4(), name)])
        connection.drain_events(timeout=5)
    assert len(read) == 1
    tables = [key for key in broker.scan_iter("*") if broker.type(key) == "set"]
    assert tables, "those of the queue of all workers"
    assert not [one for key in tables for one in broker.smembers(key) if name in one]


def _own() -> str:
    assert dispatch._own_queue is not None
    return dispatch._own_queue


def _flush() -> None:
    assert dispatch._thread is not None
    dispatch._thread.flush()


def _counts(broker: "redis.Redis") -> dict[str, int]:
    return {"own": int(broker.llen(_own())), dispatch.RESUMED: int(broker.llen(dispatch.RESUMED))}
