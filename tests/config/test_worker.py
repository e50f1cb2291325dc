"""A worker process: its imports, its command line, and the queues that it reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import pytest
from celery import signals
from kombu.utils import symbol_by_name

from config import celery, processes, worker
from config.broker import consumer as worker_queues
from config.env.environment import MAX_WORKERS
from runtime import broker, tasks
from runtime.store import pool
from tests.support import commands

# The start of a worker without the steps that need servers.
START = """
import gc, sys
collected = []
gc.callbacks.append(lambda phase, _: collected.append("django" in sys.modules))
import runpy
sys.argv = ["config.worker", "--help"]
try:
    runpy.run_module("config.worker", run_name="__main__")
except SystemExit:
    print(any(collected))
from config.celery import app
app.loader.import_default_modules()
import agents.flows.hr, agents.llm.providers, agents.effect_handler
print(*sys.modules)
"""


def test_a_worker_imports_no_unused_code_and_collects_no_garbage_meanwhile() -> None:
    *_, collected, modules = commands.python("-c", START).stdout.splitlines()
    assert collected == "False"
    assert "agents.effect_handler" in modules.split()
    assert {
        *("config.urls", "runtime.web.api.runs", "celery.bin.celery", "prompt_toolkit"),
        *("openai", "anthropic", "scim2_client", "scim2_models"),
    }.isdisjoint(modules.split())


COLLECTS = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 100_000)"
WEB = f"""
import runpy, sys
sys.argv = ["config.web", "--help"]
try:
    runpy.run_module("config.web", run_name="__main__")
except SystemExit:
    {COLLECTS}
"""


@pytest.mark.parametrize(
    "words",
    [("manage.py", "shell", "-v", "0", "-c", COLLECTS), ("-c", WEB)],
    ids=["command", "web"],
)
def test_a_process_collects_garbage_after_its_imports(words: tuple[str, ...]) -> None:
    assert commands.python(*words).stdout.splitlines()[-1] == "True True"


@pytest.mark.parametrize("given", ["--concurrency=many", "--queues", "--pool=prefork"])
def test_a_wrong_option_is_refused_by_name(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        worker.main([given])
    assert given.partition("=")[0] in capsys.readouterr().err


HEARTBEAT = 1  # connection of its own


@pytest.fixture
def queues() -> Iterator[worker_queues.QueueOrder]:
    worker_queues.set_concurrency(16)
    one = worker_queues.QueueOrder()
    one.update([broker.NEW, broker.RESUMED])
    yield one
    worker_queues.set_concurrency(1)


@dataclass
class Request:
    """The part of Celery's request that a received hint needs."""

    id: str


def _received(count: int) -> list[Request]:
    requests = [Request(id=str(number)) for number in range(count)]
    for one in requests:
        signals.task_received.send(sender=None, request=one)
    return requests


def _asked(queues: worker_queues.QueueOrder, taken: int) -> list[str]:
    """Return the queues that the worker reads while so many threads are busy."""
    requests = _received(taken)
    asked = queues.consume(2)
    for one in requests:
        signals.task_postrun.send(sender=None, task_id=one.id)
    return asked


@pytest.mark.parametrize(("number", "for_new"), [(1, 1), (4, 4), (8, 7), (16, 14), (256, 224)])
def test_resumed_runs_come_first_and_reserve_an_eighth(
    queues: worker_queues.QueueOrder, number: int, for_new: int
) -> None:
    worker_queues.set_concurrency(number)
    assert _asked(queues, for_new - 1) == [broker.RESUMED, broker.NEW]
    assert _asked(queues, for_new) == [broker.RESUMED]


def test_a_hint_that_celery_drops_frees_its_thread(queues: worker_queues.QueueOrder) -> None:
    requests = _received(14)
    assert queues.consume(2) == [broker.RESUMED]
    del requests
    assert queues.consume(2) == [broker.RESUMED, broker.NEW]


def test_embedded_postgres_has_enough_connections() -> None:
    worker = pool.POOL_SIZE + pool.DJANGOS_OF_A_WORKER + HEARTBEAT
    assert worker == processes.CONNECTIONS_OF_A_WORKER == 10
    for workers in (1, 8, MAX_WORKERS):
        assert processes.connections(workers) >= worker * (workers + processes.ISOLATED_PROCESSES)


def test_a_hint_that_a_worker_takes_is_not_acknowledged() -> None:
    """An acknowledgement would wake the main thread, and the broker does not track hints."""
    task = tasks.advance_run
    asked: list[object] = []
    headers = {"id": "1", "task": broker.ADVANCE}
    message = Mock(headers=headers, delivery_info={}, properties={}, payload=([], {}, {}))
    made: Any = symbol_by_name(task.Request)  # type: ignore[no-untyped-call]
    hint = made(message, app=celery.app, task=task, on_ack=lambda *_: asked.append(1), body=b"")
    hint.on_accepted(0, 0.0)
    assert hint.acknowledged
    assert not asked
