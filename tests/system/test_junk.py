"""A real worker whose broker holds malformed and foreign messages."""

import base64
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from runtime.broker import dispatch
from runtime.broker.dispatch import ADVANCE, NEW, RESUMED
from tests.support import processes
from tests.support.people import Office, until
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e

HINTS = 2_000


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    with Stack(sandbox / "junk", ABEYANCE_LEASE_SECONDS="2") as stack:
        yield Office(stack)


def letter(args: object, task: str = ADVANCE, **changed: object) -> bytes:
    made = json.loads(dispatch._message(uuid4(), NEW))
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
        for queue in (NEW, RESUMED):
            broker.lpush(queue, *junk(mark))
        hints = [letter([run if number % 2 else str(uuid4())]) for number in range(HINTS)]
        broker.lpush(NEW, *hints)
        assert office.decide("bea", office.approval(run), "approve")[0] == 200
        office.wait(run, "completed")  # a resumption passes all that waits among the new
        until(lambda: broker.llen(NEW) == 0 or None, "the junk to be gone", 120.0)
        assert broker.llen(RESUMED) == 0
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
            assert broker.publish("/0.celery.pidbox", letter_of_nobody) == 2
    found = json.loads(office.execute(CONTROL))
    assert {name.partition("-")[0] for name in found["ping"]} == {"worker", "isolated"}
    assert any(name.startswith(f"worker-{worker.pid}@") for name in found["ping"])
    queues = sorted(queue["name"] for one in found["queues"].values() for queue in one)
    sticky = queues.pop(2)  # of the worker process alone
    assert sticky.startswith("resumed.")
    assert queues == ["isolated", "resumed", "runs"]
    assert all("ok" in reply for on in found["events"] for one in on for reply in one.values())
    for replies in found["said"].values():
        assert len(replies) == 2
        assert all("refused" in reply["error"] for one in replies for reply in one.values())
    assert processes.of(office.stack, "worker").pid == worker.pid
    assert worker.process.is_running()
