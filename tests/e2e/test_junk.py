"""A real worker whose broker holds whatever anybody could write into it."""

import base64
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from runtime.dispatch import ADVANCE, NEW, RESUMED
from tests.e2e import crew
from tests.e2e.office import Office, until
from tests.stack import Stack

pytestmark = pytest.mark.e2e

HINTS = 2_000
WITHIN = 120.0


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    with Stack(sandbox / "junk", ABEYANCE_LEASE_SECONDS="2") as stack:
        yield Office(stack)


def letter(task: str, args: object, **changed: object) -> bytes:
    """A message as Celery writes it."""
    body = json.dumps([args, {}, {"callbacks": None, "errbacks": None}]).encode()
    number = str(uuid4())
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"id": number, "task": task, "root_id": number, "lang": "py"},
            "properties": {
                "correlation_id": number,
                "delivery_tag": number,
                "delivery_info": {"exchange": "", "routing_key": NEW},
                "body_encoding": "base64",
                "priority": 0,
            },
            **changed,
        }
    ).encode()


def junk(mark: Path) -> list[bytes]:
    pickled = base64.b64encode(pickle.dumps(_Touch(mark))).decode()
    calling = [["x"], {}, {"chain": [7]}]
    calls_others = base64.b64encode(json.dumps(calling).encode()).decode()
    return [
        *(os.urandom(200) for _ in range(20)),
        b"",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"17",
        b"[" * 100_000,
        b'{"properties": 5}',
        b'{"properties": {}}',
        b'{"properties": {"delivery_tag": null}}',
        pickle.dumps(_Touch(mark)),
        letter(ADVANCE, ["x"], body="not base64"),
        letter(ADVANCE, ["x"], headers=None),
        letter(ADVANCE, ["x"], headers={"task": ["a", "list"]}),
        letter(
            ADVANCE, ["x"], **{"content-type": "application/x-python-serialize", "body": pickled}
        ),
        letter(ADVANCE, ["x"], **{"content-type": "application/x-nobody-knows"}),
        letter("os.system", [f"touch {mark}"]),
        letter(ADVANCE, []),
        letter(ADVANCE, ["not a run"]),
        letter(ADVANCE, [7]),
        letter(ADVANCE, [str(uuid4()), "and", "more"]),
        letter(ADVANCE, {"run": "x"}),
        letter(ADVANCE, None),
        # Celery fails after such a task and never counts it as done: more of them than a worker has places.
        *(letter(ADVANCE, ["x"], body=calls_others) for _ in range(300)),
    ]


class _Touch:
    """Unpickling it leaves a trace."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def test_junk_on_the_broker_is_thrown_away_and_the_worker_goes_on(
    office: Office, tmp_path: Path
) -> None:
    worker = crew.of(office.stack, "worker")
    mark = tmp_path / "ran"
    run = office.start("hr_onboarding_single", "amidjunk")
    office.wait(run, "suspended")
    with redis.Redis.from_url(worker.process.environ()["REDIS_URL"]) as broker:
        for queue in (NEW, RESUMED):
            broker.lpush(queue, *junk(mark))
        hints = [letter(ADVANCE, [run if number % 2 else str(uuid4())]) for number in range(HINTS)]
        broker.lpush(NEW, *hints)
        assert office.decide("bea", office.approval(run), "approve")[0] == 200
        office.wait(run, "completed")  # a resumption passes all that waits among the new
        until(lambda: broker.llen(NEW) == 0 or None, "the junk to be gone", WITHIN)
        assert broker.llen(RESUMED) == 0
    again = office.start("hr_onboarding_single", "afterjunk")
    office.wait(again, "suspended")
    assert worker.process.is_running()
    assert crew.of(office.stack, "worker").pid == worker.pid
    assert office.mails("amidjunk") == 1
    assert not mark.exists()
