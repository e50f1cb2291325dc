"""A worker process: its imports, its command line, and the queues that it reads."""

import threading
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import psycopg
import psycopg_pool
import pytest
from celery.signals import worker_ready
from django.core.management import call_command

from config import celery, processes, wiring, worker
from config.broker import consumer
from config.broker.consumer import HintReader
from config.env.environment import MAX_WORKERS
from runtime import broker, tasks
from runtime.core.documents import codec, continuations
from runtime.core.run.events import EVENT_TYPES
from runtime.store import pool
from runtime.upkeep import startup, sweeper
from tests.support import commands
from tests.support.people import until

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
        *("openai", "anthropic", "scim2_client", "scim2_models", "requests", "jwt"),
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


@pytest.mark.parametrize("queues", ["resumed,jobs", "jobs", "runs,isolated", "Resumed", ""])
def test_only_the_queues_of_runs_are_taken(queues: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Celery reads the jobs itself: as a hint, a message of a job would be lost."""
    with pytest.raises(SystemExit):
        worker.main([f"--queues={queues}"])
    assert "--queues takes resumed and runs" in capsys.readouterr().err


@pytest.mark.parametrize("error", [psycopg.errors.LockNotAvailable, psycopg_pool.PoolTimeout])
def test_a_worker_reads_hints_even_if_postgres_breaks_as_it_gets_ready(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Celery ignores an error of the handler: the worker would beat and never advance a run."""

    def fail(*_: object, **__: object) -> None:
        raise error("canceling statement due to lock timeout")

    reader = Mock()
    monkeypatch.setattr("runtime.store.pool.pooled", fail)
    monkeypatch.setattr(tasks, "open_worker_context", Mock())
    monkeypatch.setattr(consumer, "HintReader", reader)
    monkeypatch.setattr(celery, "_hints", None)
    worker_ready.send(sender=Mock())
    reader.return_value.start.assert_called_once_with()
    assert "canceling statement due to lock timeout" in caplog.text


HEARTBEAT = 1  # connection of its own


@pytest.mark.parametrize(("number", "for_new"), [(1, 1), (4, 4), (8, 7), (16, 14), (256, 224)])
def test_resumed_runs_come_first_and_reserve_an_eighth(
    number: int, for_new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a broker that has a hint in each queue at any time."""
    read, held, draining = list[Sequence[str]](), threading.Event(), list[str]()
    follow = threading.Semaphore(0)

    def take(queues: Sequence[str], _: float) -> str | None:
        follow.acquire()
        read.append(queues)
        return None if draining else queues[-1]

    monkeypatch.setattr(broker, "take_hint", take)
    queues = [broker.NEW, broker.RESUMED]
    reader = HintReader(queues, number, lambda _: held.wait(), lambda: bool(draining))
    reader.start()
    try:
        for _ in range(number):
            follow.release()
        until(lambda: not reader.list_readable_queues() or None, "each thread to have a run")
    finally:
        draining.append("now")
        held.set()
        follow.release()
        reader.join()
    assert read[:number] == [
        *[[broker.RESUMED, broker.NEW]] * for_new,
        *[[broker.RESUMED]] * (number - for_new),
    ]
    assert reader.list_readable_queues() == [broker.RESUMED, broker.NEW]


def test_a_worker_that_ends_without_a_stop_signal_reads_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drains = threading.Event()
    monkeypatch.setattr(broker, "take_hint", lambda *_: None)
    for name, act in {"drain": drains.set, "is_hung": bool, "stop": lambda: True}.items():
        monkeypatch.setattr(tasks, name, act)
    reader = HintReader([broker.NEW], 1, lambda _: None, drains.is_set)
    monkeypatch.setattr(celery, "_hints", reader)
    reader.start()
    end = threading.Thread(target=celery._exit, daemon=True)
    end.start()
    try:
        until(lambda: not end.is_alive() or None, "the worker to end", 10.0)
    finally:
        drains.set()
    assert not reader.is_alive()


@pytest.mark.parametrize("drains", [False, True])
def test_a_worker_that_drains_passes_a_hint_on(
    monkeypatch: pytest.MonkeyPatch, drains: bool
) -> None:
    """It may receive one just before it stops to read."""
    context, run = Mock(), uuid4()
    context.heartbeat.draining.started = drains
    advanced, passed_on = list[UUID](), list[UUID]()
    monkeypatch.setattr(tasks, "open_worker_context", lambda: context)
    monkeypatch.setattr(tasks, "advance", lambda run, _: advanced.append(run))
    monkeypatch.setattr(broker, "dispatch", passed_on.append)
    tasks.advance_run(str(run))
    assert (advanced, passed_on) == (([], [run]) if drains else ([run], []))


def test_a_reader_outlives_the_broker_errors_and_a_run_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer, "WAIT_SECONDS", 0.01)
    gone, full = ConnectionError("gone"), RuntimeError("can't start new thread")
    answers: list[Any] = [gone, gone, full, "broken", None, "run"]
    followed, ended = list[str](), threading.Event()

    def take(*_: object) -> str | None:
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def follow(hint: str) -> None:
        followed.append(hint)
        if hint == "broken":
            raise ValueError(hint)
        ended.set()

    monkeypatch.setattr(broker, "take_hint", take)
    reader = HintReader([broker.NEW], 1, follow, ended.is_set)
    reader.start()
    reader.join()
    assert followed == ["broken", "run"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "ERROR"]


def test_embedded_postgres_has_enough_connections() -> None:
    worker = pool.POOL_SIZE + pool.DJANGOS_OF_A_WORKER + HEARTBEAT
    assert worker == processes.CONNECTIONS_OF_A_WORKER == 10
    for workers in (1, 8, MAX_WORKERS):
        assert processes.count_connections(workers) >= worker * (
            workers + processes.ISOLATED_PROCESSES
        )


# Before it is ready


def start_web() -> None:
    from config import web

    web.main(["--bind", "127.0.0.1:0"])


@pytest.mark.filterwarnings("ignore:No directory at")  # static files, as the module is imported
@pytest.mark.parametrize(
    "start",
    [start_web, celery._equip, lambda: call_command("sweep")],
    ids=["web", "worker", "sweeper"],
)
def test_a_process_reads_and_writes_documents_before_it_is_ready(
    start: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ready(BaseException):
        """The process would say that it is ready."""

    def say_ready(*_: object, **__: object) -> None:
        raise Ready

    for name in ("database", "broker", "keys", "durable_stores", "keys_of_live_runs"):
        monkeypatch.setattr(startup, f"require_{name}", lambda **_: None)
    monkeypatch.setattr(wiring, "connect_effects", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("PGAPPNAME", "tests")
    monkeypatch.setattr("config.celery._collect_from_here", say_ready)
    monkeypatch.setattr("uvicorn.Server.run", say_ready)
    monkeypatch.setattr(sweeper, "run", say_ready)
    caches = (
        codec._make_entry_adapter,
        continuations._make_continuation_adapter,
        codec._make_kind_adapter,
    )
    for cache in caches:
        cache.cache_clear()
    with pytest.raises(Ready):
        start()
    assert [cache.cache_info().currsize for cache in caches] == [1, 1, len(EVENT_TYPES)]
