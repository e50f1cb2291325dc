"""The broker is emptied, killed, frozen, full or full of junk, and another web process and worker take over."""

import base64
import json
import os
import pickle
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
import redis

from config.local.http_client import request
from runtime import broker
from runtime.broker import JOBS, NEW, QUEUES
from tests.support import processes
from tests.support.people import Office, until
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    with Stack(sandbox / "broker", SIGNOFF_LEASE_SECONDS="2") as stack:
        yield Office(stack)


def test_a_broker_emptied_at_the_decision_loses_nothing(office: Office) -> None:
    run = _suspended(office, "emptied")
    worker = processes.of(office.stack, "worker").process
    worker.suspend()  # or it would be faster than we are
    with redis.Redis.from_url(worker.environ()["REDIS_URL"]) as broker:
        _approve(office, run)
        until(lambda: broker.llen("resumed") or None, "the hint to arrive")
        broker.flushall()
    worker.resume()
    _finished_once(office, run, "emptied")


def test_a_broker_killed_at_the_decision_loses_nothing(office: Office) -> None:
    run = _suspended(office, "killed")
    broker = processes.of(office.stack, "broker").process
    broker.kill()
    _approve(office, run)
    _finished_once(office, run, "killed")
    assert not psutil.pid_exists(broker.pid)  # the launcher has started another one


def test_a_broker_frozen_at_the_decision_delays_no_answer(office: Office) -> None:
    run = _suspended(office, "frozen")
    broker = processes.of(office.stack, "broker").process
    broker.suspend()
    try:
        _approve(office, run)
        assert broker.status() == psutil.STATUS_STOPPED  # it answered without the broker
        assert office.roles("frozen") == []
    finally:
        broker.resume()
    _finished_once(office, run, "frozen")


@contextmanager
def full(office: Office) -> Iterator["redis.Redis"]:
    """Have the broker refuse writes for as long as the block lasts."""
    worker = processes.of(office.stack, "worker").process
    with redis.Redis.from_url(worker.environ()["REDIS_URL"]) as broker:
        before = broker.config_get("maxmemory*")
        broker.config_set("maxmemory-policy", "noeviction")
        broker.config_set("maxmemory", 1)
        try:
            with pytest.raises(redis.ResponseError, match="maxmemory"):
                broker.rpush("resumed", "anything")
            yield broker
        finally:
            for name, value in before.items():
                broker.config_set(name, value)


def test_a_broker_that_is_full_at_the_decision_loses_nothing(office: Office) -> None:
    """A full broker refuses writes: decisions and the worker go on without it."""
    run = _suspended(office, "full")
    worker = processes.of(office.stack, "worker").process
    with full(office):
        _approve(office, run)
        assert office.run(run)["status"] != "completed"  # no worker gets a hint
    _finished_once(office, run, "full")
    assert worker.is_running()


def test_a_worker_starts_and_empties_a_full_broker(office: Office) -> None:
    """If it waited for room, a broker that is full of hints would stay full."""
    first = processes.of(office.stack, "worker").process
    first.suspend()
    try:
        with redis.Redis.from_url(first.environ()["REDIS_URL"]) as broker:
            broker.lpush(NEW, *[str(uuid4()) for _ in range(HINTS)])
        with full(office) as broker, processes.another(office.stack, "worker", "late") as late:
            until(lambda: not broker.llen(NEW) or None, "the hints to be read")
            assert (late.said("The broker is full."), late.said("Traceback")) == (2, 0)
    finally:
        first.resume()


def test_another_web_process_decides_and_another_worker_resumes(office: Office) -> None:
    run = _suspended(office, "handed")
    stack, first = office.stack, processes.of(office.stack, "worker").process
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    first.suspend()
    try:
        with (
            processes.another(stack, "web", "web2", bind=place),
            processes.another(stack, "worker", "worker2") as second,
        ):
            token = stack.credentials["users"]["bea"]["token"]
            code, _ = _decide(f"http://{place}", office.approval(run), token, "approve")
            assert code == 200
            _finished_once(office, run, "handed")
            assert second.process.is_running()
            assert first.status() == psutil.STATUS_STOPPED
    finally:
        first.resume()


def _decide(url: str, approval: dict[str, Any], token: str, verdict: str) -> tuple[int, Any]:
    path = f"/api/v1/approvals/{approval['id']}/decision"
    body = {"verdict": verdict, "digest": approval["digest"], "reason": "a race"}
    body["confirm"] = approval["confirm"]
    return request(url, "POST", path, token=token, body=body)


def _approve(office: Office, run: str) -> None:
    assert office.decide("bea", office.approval(run), "approve")[0] == 200


def _suspended(office: Office, name: str) -> str:
    run = office.start("hr_onboarding", name)
    office.wait(run, "suspended")
    assert (office.roles(name), office.mails(name)) == ([], 0)
    return run


def _finished_once(office: Office, run: str, name: str) -> None:
    office.wait(run, "completed")
    assert len(office.accounts(name)) == 1
    assert (office.roles(name), office.mails(name)) == (["security-level-3"], 1)


# Malformed and foreign messages

HINTS = 2_000


def letter(args: object, task: str = "runtime.trial", **changed: object) -> bytes:
    made = json.loads(broker._message(uuid4(), task))
    body = json.dumps([args, {}, {"callbacks": None, "errbacks": None}]).encode()
    headers = {**made["headers"], "task": task}
    encoded = base64.b64encode(body).decode()
    return json.dumps({**made, "body": encoded, "headers": headers, **changed}).encode()


def junk(mark: Path) -> list[bytes]:
    pickled = base64.b64encode(pickle.dumps(_Touch(mark))).decode()
    calling = [["x"], {}, {"chain": [7]}]
    calls_others = base64.b64encode(json.dumps(calling).encode()).decode()
    return [
        *(os.urandom(200) for _ in range(20)),
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"properties": {"delivery_tag": null}}',
        pickle.dumps(_Touch(mark)),
        letter(["x"], body="not base64"),
        letter(["x"], headers=None),
        letter(["x"], **{"content-type": "application/x-python-serialize", "body": pickled}),
        letter(["x"], **{"content-type": "application/x-unknown"}),
        letter([f"touch {mark}"], "os.system"),
        letter(["not a run"]),
        letter([str(uuid4()), "and", "more"]),
        letter(None),
        # Celery fails after such a task and never counts it as done: more of them than a worker has places.
        *(letter(["x"], body=calls_others) for _ in range(300)),
    ]


# As Flower and `celery inspect` do it.
CONTROL = """
import json
from config.celery import app
asked = app.control.inspect(timeout=5)
said = {name: app.control.broadcast(name, reply=True, timeout=2) for name in ("shutdown", "pool_shrink")}
events = [app.control.broadcast(f"{act}_events", reply=True, timeout=2) for act in ("enable", "disable")]
print(json.dumps({"ping": asked.ping(), "queues": asked.active_queues(), "said": said, "events": events}))
"""


class _Touch:
    """Unpickling it leaves a trace."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def test_a_worker_discards_junk_on_the_broker_and_goes_on(office: Office, tmp_path: Path) -> None:
    worker = processes.of(office.stack, "worker")
    mark = tmp_path / "ran"
    run = office.start("hr_onboarding_single", "amidjunk")
    office.wait(run, "suspended")
    with redis.Redis.from_url(worker.process.environ()["REDIS_URL"]) as broker:
        for queue in QUEUES:
            broker.lpush(queue, *junk(mark))
        broker.lpush(NEW, *[run if number % 2 else str(uuid4()) for number in range(HINTS)])
        broker.lpush(JOBS, *[letter([str(uuid4())]) for _ in range(HINTS)])
        assert office.decide("bea", office.approval(run), "approve")[0] == 200
        office.wait(run, "completed")  # a resumption passes all that waits among the new
        until(lambda: not any(map(broker.llen, QUEUES)) or None, "the junk to be gone", 120.0)
    again = office.start("hr_onboarding_single", "afterjunk")
    office.wait(again, "suspended")
    assert worker.process.is_running()
    assert processes.of(office.stack, "worker").pid == worker.pid
    assert office.mails("amidjunk") == 1
    assert not mark.exists()


def test_celery_asks_workers_and_commands_nothing(office: Office) -> None:
    worker = processes.of(office.stack, "worker")
    with redis.Redis.from_url(worker.process.environ()["REDIS_URL"]) as broker:
        for letter_of_nobody in (b"junk", b"{}", b'{"properties": 5}'):
            assert broker.publish("/0.celery.pidbox", letter_of_nobody) == 1
    found = json.loads(office.execute(CONTROL))
    (name,) = found["ping"]
    assert name.startswith(f"worker-{worker.pid}@")
    queues = [queue["name"] for one in found["queues"].values() for queue in one]
    assert queues == [JOBS]  # it reads those of runs without Celery
    assert all("ok" in reply for on in found["events"] for one in on for reply in one.values())
    for replies in found["said"].values():
        assert len(replies) == 1
        assert all("refused" in reply["error"] for one in replies for reply in one.values())
    assert processes.of(office.stack, "worker").pid == worker.pid
    assert worker.process.is_running()
