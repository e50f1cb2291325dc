"""Hints are sent by a thread of their own; that of a run which a process keeps goes to its queue while it listens."""

import base64
import json
import queue
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest
import redis
from django.db import transaction

from config import celery, worker
from config.broker.consumer import HintReader
from config.celery import app
from runtime import broker as dispatch
from runtime import tasks
from runtime.control.user_actions import notify
from tests.support.people import until


@pytest.fixture(autouse=True)
def _fresh_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_thread", None)
    monkeypatch.setattr(dispatch, "_own_queue", None)
    dispatch._open_broker.cache_clear()


@pytest.fixture
def broker(live_broker: str) -> Iterator["redis.Redis"]:
    """Yield a client of the broker, whose queues are empty."""
    client = redis.Redis.from_url(live_broker, decode_responses=True)
    client.delete(*dispatch.QUEUES)
    yield client
    client.delete(*dispatch.QUEUES)
    client.close()


@pytest.mark.parametrize("kind", sorted(dispatch.JOB_KINDS))
def test_the_message_of_a_job_equals_one_of_celery(broker: "redis.Redis", kind: str) -> None:
    """Or a version of Celery or kombu has changed the form, and `dispatch._message` must follow."""
    job, task = uuid4(), f"runtime.{kind}"
    app.send_task(task, args=[str(job)], queue=dispatch.JOBS, retry=False, ignore_result=True)
    dispatch.send_all([(job, kind)])
    ours, celerys = [_comparable(message) for message in broker.lrange(dispatch.JOBS, 0, -1)]
    assert ours == celerys
    assert ours["headers"]["task"] == task
    assert ours["body"][0] == [str(job)]


def _comparable(message: bytes | str) -> dict[str, Any]:
    """Return every value at any depth, except those that differ in each message."""
    found: dict[str, Any] = json.loads(message)
    headers, properties = found["headers"], found["properties"]
    assert headers.pop("id") == headers.pop("root_id") == properties.pop("correlation_id")
    assert properties.pop("delivery_tag")
    properties.pop("reply_to", None)  # of results, which are ignored
    return {**found, "body": json.loads(base64.b64decode(found["body"]))}


def test_hints_travel_together_each_to_its_queue_in_order(broker: "redis.Redis") -> None:
    queues = (dispatch.RESUMED, dispatch.NEW)
    hints = [(uuid4(), queue) for queue in queues for _ in range(2)]
    dispatch.send_all(hints)
    assert [dispatch.take_hint(queues, 1.0) for _ in hints] == [str(run) for run, _ in hints]
    assert dispatch.take_hint(queues, 0.01) is None


def test_10000_hints_fill_a_queue(broker: "redis.Redis", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "ROOM", 2)
    for name in (dispatch.NEW, dispatch.NEW, dispatch.RESUMED):
        dispatch.send_all([(uuid4(), name)])
    assert dispatch.list_queues_with_room() == {dispatch.RESUMED, dispatch.JOBS}


def test_a_queue_that_another_program_uses_is_told_from_a_lost_broker(
    broker: "redis.Redis",
) -> None:
    broker.set(dispatch.NEW, "of another program")
    for act in (dispatch.list_queues_with_room, lambda: dispatch.take_hint([dispatch.NEW], 0.01)):
        with pytest.raises(ConnectionError, match=r"refuses a command: WRONGTYPE.*its own"):
            act()


def test_a_lost_broker_costs_the_hint_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConnectionError, match="the broker is unreachable"):
        dispatch.list_queues_with_room()
    run = uuid4()
    dispatch.dispatch(run)
    _flush()
    assert f"Run {run}: hint not sent" in caplog.text


def test_a_process_that_ends_sends_its_hints(broker: "redis.Redis") -> None:
    for _ in range(500):
        dispatch.dispatch(uuid4())
    tasks.stop()
    assert broker.llen(dispatch.RESUMED) == 500


def test_a_process_that_ends_waits_no_longer_for_a_frozen_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thawed = threading.Event()
    monkeypatch.setattr(dispatch, "send_all", lambda hints: thawed.wait())
    dispatch.dispatch(uuid4())
    dispatch.flush(0.01)
    thawed.set()
    _flush()


def test_hints_beyond_the_queue_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = threading.Event()
    monkeypatch.setattr(dispatch, "send_all", lambda hints: blocked.wait())
    monkeypatch.setattr(dispatch, "QUEUE_SIZE", 1)
    for _ in range(3):
        dispatch.dispatch(uuid4())
    blocked.set()
    assert "dropped" in caplog.text


def test_an_inbox_that_changes_after_its_run_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: queue.Queue[Any] = queue.Queue()
    notifier, run = dispatch.Notifier(), uuid4()
    monkeypatch.setattr(notifier, "_publish", rung.put)  # that of the process may be busy
    for inbox in (False, True, False):
        notifier.put(run, inbox=inbox)
    assert rung.get(timeout=60) == [{"runs": {str(run): True}}]
    notifier.put(run, inbox=False)  # a published run is queued again
    assert rung.get(timeout=60) == [{"runs": {str(run): False}}]


def test_an_error_of_any_kind_stops_no_later_update(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rung: queue.Queue[Any] = queue.Queue()
    notifier, run = dispatch.Notifier(), uuid4()

    def fail(_: object) -> None:
        monkeypatch.setattr(notifier, "_publish", rung.put)
        rung.put("failed")
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(notifier, "_publish", fail)
    notifier.put(run, inbox=False)
    assert rung.get(timeout=60) == "failed"
    notifier.put(run, inbox=False)
    assert rung.get(timeout=60) == [{"runs": {str(run): False}}]
    assert "Live updates were not published" in caplog.text


@pytest.fixture
def kept(broker: "redis.Redis", monkeypatch: pytest.MonkeyPatch) -> UUID:
    """Return a run that this process keeps."""
    monkeypatch.setattr(transaction, "on_commit", lambda send: send())
    run = uuid4()
    own = dispatch.open_own_queue()
    dispatch.note_listening(broker, own)
    dispatch.keep(run)
    _flush()
    return run


def test_a_signal_hints_the_process_that_keeps_the_run(broker: "redis.Redis", kept: UUID) -> None:
    (name,) = broker.keys(f"signoff:listens:{_own()}")
    assert 0 < int(broker.pttl(name)) <= 3_000
    notify(kept)
    notify(uuid4())
    _flush()
    assert _counts(broker) == {"own": 1, dispatch.RESUMED: 1}
    assert 0 < int(broker.ttl(_own())) <= dispatch.UNREAD_SECONDS
    dispatch.dispatch(kept)
    dispatch.send_all([(kept, dispatch.RESUMED)])
    _flush()
    assert _counts(broker) == {"own": 1, dispatch.RESUMED: 3}  # of other workers and the sweeper


def test_hints_a_process_leaves_unread_go_to_all_workers(broker: "redis.Redis", kept: UUID) -> None:
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


def test_a_broker_without_scripts_gets_hints_for_all(broker: "redis.Redis", kept: UUID) -> None:
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
    reader = HintReader([own], 1, draining.append, lambda: bool(draining))
    reader.start()
    until(lambda: broker.exists(f"signoff:listens:{own}") or None, "the process to listen")
    dispatch.send_all([(uuid4(), own)])  # after which it drains
    reader.join()
    assert not broker.exists(f"signoff:listens:{own}")
    dispatch.note_listening(broker, own)
    tasks.stop()
    assert not broker.exists(f"signoff:listens:{own}")


def test_the_hints_of_a_full_broker_are_read(broker: "redis.Redis") -> None:
    own, run = dispatch.open_own_queue(), uuid4()
    dispatch.send_all([(run, dispatch.RESUMED)])
    read: list[str] = []
    reader = HintReader([dispatch.RESUMED, own], 1, read.append, lambda: bool(read))
    broker.config_set("maxmemory", 1)
    try:
        reader.start()
        reader.join(10.0)
    finally:
        broker.config_set("maxmemory", 0)
        read.append("end")
        reader.join()
    assert read == [str(run), "end"]


def test_no_queue_keeps_no_run(broker: "redis.Redis", caplog: pytest.LogCaptureFixture) -> None:
    run = uuid4()
    dispatch.keep(run)
    dispatch.dispatch(run, dispatch.STICKY)
    _flush()
    assert broker.llen(dispatch.RESUMED) == 1
    assert not broker.exists(f"signoff:kept:{run}")
    assert not caplog.records


@pytest.mark.parametrize(("queues", "has_own"), [("resumed,runs", True), ("runs", False)])
def test_a_worker_of_resumed_runs_has_a_queue_of_its_own(
    queues: str, has_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "app", Mock(**{"Worker.return_value.exitcode": 0}))
    monkeypatch.setattr(celery, "queues", [])
    monkeypatch.setattr(worker, "share_connections", lambda: None)
    worker.main(["--queues", queues])
    assert (dispatch._own_queue is not None) is has_own
    own = [dispatch._own_queue] if has_own else []
    assert celery.queues == [*queues.split(","), *own]


def _own() -> str:
    assert dispatch._own_queue is not None
    return dispatch._own_queue


def _flush() -> None:
    assert dispatch._thread is not None
    dispatch._thread.flush()


def _counts(broker: "redis.Redis") -> dict[str, int]:
    return {"own": int(broker.llen(_own())), dispatch.RESUMED: int(broker.llen(dispatch.RESUMED))}
