"""Processes that advance due runs without a broker until they are killed, forked from one that has imported all."""

import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection

from tests.support import forks


class Loop:
    """One process: of all due runs, or of `only` one, with `slots` for tools and these environment variables."""

    def __init__(
        self,
        folder: Path,
        *,
        lease: float = 1.0,
        slots: int | None = None,
        only: UUID | None = None,
        **env: str,
    ) -> None:
        self.log = folder / f"{uuid4().hex}.log"
        self.log.touch()
        known = {**os.environ, **env}
        self._process = forks.begin(
            _advance_due_runs, str(self.log), lease, slots, only, known, daemon=True
        )
        self._is_gone = False

    def is_alive(self, seconds: float = 0) -> bool:
        """Tell whether it lives after so many seconds."""
        if not self._is_gone:
            self._process.join(seconds)
            self._is_gone = not self._process.is_alive()
            if self._is_gone:
                self._process.close()
        return not self._is_gone

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 30
        while "looping" not in self.log.read_text():
            # An armed process dies soon after this line.
            assert self.is_alive(0.005) or "looping" in self.log.read_text(), self.log.read_text()
            assert time.monotonic() < deadline

    def kill(self) -> None:
        """kill -9, returning when it is gone."""
        if self.is_alive():
            self._process.kill()
            assert not self.is_alive(60)


def die_at(
    point: str, folder: Path, act: Callable[..., object], *given: object, **changed: object
) -> None:
    """Call a function in a process that ends itself by kill -9 at this point, and wait for its end.

    `changed` are its settings. Postgres has ended its transactions and given their locks back, too.
    """
    died, log = folder / "died", folder / "victim.log"
    log.touch()
    name = f"victim {uuid4()}"
    armed = {"SIGNOFF_KILL_POINT": point, "SIGNOFF_KILL_ONCE": str(died), "PGAPPNAME": name}
    victim = forks.begin(_act, str(log), {**os.environ, **armed}, changed, act, *given)
    victim.join(60)
    assert (victim.exitcode, died.exists()) == (-signal.SIGKILL, True), log.read_text()
    victim.close()
    deadline = time.monotonic() + 60
    while _is_connected(name):
        assert time.monotonic() < deadline


def _is_connected(name: str) -> bool:
    """Tell whether Postgres still serves a connection with this application name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", [name])
        return cursor.fetchone() is not None


def _act(
    log: str,
    env: dict[str, str],
    changed: dict[str, object],
    act: Callable[..., object],
    *given: object,
) -> None:
    _write_to(log)
    forks.adopt(env)
    for name, value in changed.items():
        setattr(settings, name, value)
    act(*given)


def _write_to(log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _advance_due_runs(
    log: str, lease: float, slots: int | None, only: UUID | None, env: dict[str, str]
) -> None:
    from config import wiring
    from runtime import tasks
    from runtime.execution import runner
    from runtime.execution.claim import advance
    from runtime.execution.effects.pool import EffectPool
    from runtime.store import leases, pool, workers

    _write_to(log)
    forks.adopt(env)
    settings.SIGNOFF_LEASE_SECONDS = lease
    settings.SIGNOFF_POISON_LOSSES = 1_000_000  # these deaths are ours, and no run's
    wiring.connect_effects()
    bench = tasks.open_worker_context()
    # A script stands for a model here: its reply has an entry of its own, except that of an agent of code.
    runner.Runner._is_scripted = lambda _, agent: bench.handler.registry.get(agent).is_code  # type: ignore[assignment, attr-defined, method-assign]
    if slots is not None:
        bench = replace(bench, effect_pool=EffectPool(bench.handler, slots=slots))
    take = f"""
        WITH taken AS MATERIALIZED (
            SELECT id, isolated, worker, position, owner IS NOT NULL AS was_lost FROM runtime_run
            WHERE due_at <= clock_timestamp() + interval '1 second' AND (owner IS NULL OR NOT {leases.LIVE})
                AND id = coalesce(%s, id)
            ORDER BY random() LIMIT 8 FOR UPDATE SKIP LOCKED),
        noted AS ({workers.NOTE_LOSS})
        UPDATE runtime_run SET {leases.TAKE_OVER} FROM taken WHERE runtime_run.id = taken.id
        RETURNING taken.id, taken.isolated
    """
    sys.stdout.write("looping\n")
    sys.stdout.flush()
    with ThreadPoolExecutor(4) as threads, pool.open_own() as connection:
        while True:
            # Unlike the sweeper, do not skip runs seen before or wait for hints: no process here lives so long.
            due = connection.execute(take, (only,)).fetchall()
            list(threads.map(lambda row: advance(row[0], bench, isolated=row[1]), due))
            if not due:
                time.sleep(0.02)  # a loop without due runs looks again, as the sweeper does
