"""One process that has imported everything and forks what tests ask for, so that a worker starts at once.

It reads one JSON document a line and answers with one: `{"start": KIND, "env": {…},
"log": path}` gives `{"pid": …}`, and `{"ended": pid}` follows when a child is gone. KIND is worker, isolated,
sweeper or loop. Nothing is open across a fork: the zygote itself never talks to Postgres or the broker.

A worker is the real command of config.processes. A loop advances due runs without any broker.
"""

import gc
import json
import os
import select
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import django


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    _import_everything()
    gc.freeze()
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _say({"ready": os.getpid()})
    buffer = b""
    while True:
        ready, _, _ = select.select([0, read], [], [])
        if read in ready:
            os.read(read, 4096)
            _reap()
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                _say({"pid": _fork(json.loads(line))})


def _import_everything() -> None:
    import kombu.transport.redis  # noqa: F401

    import agents.effect_handler  # noqa: F401
    import config.celery
    import runtime.tasks  # noqa: F401
    import tests.support.scripted_agents.flows  # noqa: F401

    config.celery.app.finalize()
    _warm_up()


def _warm_up() -> None:
    """Have a script answer once: the first answer in a process takes long."""
    from pydantic_ai.messages import ModelRequest

    from agents.llm.messages import from_provider
    from agents.llm.script_player import run_script
    from tests.support.scripted_agents.flows import outer

    asked = ModelRequest.user_text_prompt('{"turns": []}')
    reply, usage = run_script(outer, [asked])
    from_provider(outer, reply, usage=usage)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _say({"ended": pid, "by": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0})


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        _become(order)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _become(order: dict[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.setsid()
    os.environ.update(order["env"])
    match order["start"]:
        case "worker" | "isolated" as kind:
            _work(kind, order.get("broker"))
        case "sweeper":
            _sweep()
        case _:
            _loop()


def _work(kind: str, broker: str | None) -> None:
    from config import celery as configured
    from config import worker
    from config.processes import table

    if broker is not None:
        configured.app.conf.broker_url = broker
    (process,) = (process for process in table() if process.name == kind)
    sys.exit(worker.main(process.command[3:]))


def _sweep() -> None:
    from django.core.management import call_command

    call_command("sweep")


def _loop() -> None:
    """Advance due runs, a few at a time, for ever."""
    from django.conf import settings

    from config import wiring
    from runtime import tasks
    from runtime.execution.claim import advance
    from runtime.execution.effects.pool import EffectPool
    from runtime.store import leases, pool, workers

    settings.ABEYANCE_LEASE_SECONDS = float(os.environ["ABEYANCE_FAULTS_LEASE"])
    settings.ABEYANCE_POISON_LOSSES = (
        1_000_000  # this process is killed on purpose, again and again
    )
    wiring.connect_effects()
    bench = tasks.worker_context()
    if slots := os.environ.get("ABEYANCE_FAULTS_SLOTS"):
        bench = replace(bench, effect_pool=EffectPool(bench.handler, slots=int(slots)))
    sys.stdout.write("looping\n")
    sys.stdout.flush()
    take = f"""
        WITH taken AS MATERIALIZED (
            SELECT id, isolated, worker, position, lost_at, owner IS NOT NULL AS was_lost FROM runtime_run
            WHERE due_at <= clock_timestamp() + interval '1 second' AND (owner IS NULL OR NOT {leases.LIVE})
            ORDER BY random() LIMIT 8 FOR UPDATE SKIP LOCKED),
        noted AS ({workers.NOTE_LOSS})
        UPDATE runtime_run SET {leases.TAKE_OVER} FROM taken WHERE runtime_run.id = taken.id
        RETURNING taken.id, taken.isolated
    """
    with ThreadPoolExecutor(4) as threads, pool.own() as connection:
        while True:
            # Unlike the sweeper, do not skip runs seen before or wait for hints: no process here lives so long.
            due = connection.execute(take).fetchall()
            list(threads.map(lambda row: advance(row[0], bench, isolated=row[1]), due))
            if not due:
                select.select([], [], [], 0.02)


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
