"""Everything that is measured, as real processes: Postgres, broker, directory, mailbox and workers.

Postgres is as durable as `make up` has it, with pg_stat_statements besides. The bench itself stands where
the web process would: it starts runs and decides, over Django's connection and the broker.
"""

import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import LiteralString

import psutil
import psycopg

from config.local.processes import spawn
from config.local.servers import postgres
from config.processes import list_processes
from tests.support import commands, servers

READY, READY_WITHIN = "ready.", 60.0
KEPT = """
    SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND (relname LIKE 'baseline_%%') = %s
"""
TOKEN = secrets.token_hex(32)
AGENTS = "agents.flows.hr,tests.bench.sides.agents,tests.bench.sides.clerk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A started process and its output."""

    name: str
    process: commands.Process
    log: Path

    def cpu(self) -> float:
        """Seconds of processor time so far, of all its threads and child processes."""
        return sum(cpu_of(process.pid) for process in self._tree())

    def memory(self) -> int:
        """Bytes of it and its child processes, with a fair share of what several processes have in common."""
        return int(sum(process.memory_full_info().pss for process in self._tree()))

    def _tree(self) -> list[psutil.Process]:
        process = psutil.Process(self.process.pid)
        return [process, *process.children(recursive=True)]


@dataclass(frozen=True, slots=True)
class Site:
    """One folder with servers of its own, and the programs that were started in it; use `running`."""

    folder: Path
    cluster: postgres.Cluster
    postgres: commands.Process
    broker: commands.Process
    programs: list[Program] = field(default_factory=list)

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """An autocommit connection of the caller's own, without any limit of time."""
        return psycopg.connect(self.cluster.url(), autocommit=True)

    # Programs

    def worker(self, module: str = "config.worker", **more: str) -> Program:
        """One worker process of ours, as `make up` starts it; `module` runs it in another way."""
        words = [module if word == "config.worker" else word for word in _command("worker")]
        return self.run("worker", words, READY, pinned=True, **more)

    def sweeper(self) -> Program:
        return self.run("sweeper", _command("sweeper"))

    def web(self, port: int, **more: str) -> Program:
        command = _command("web", bind=f"127.0.0.1:{port}")
        return self.run("web", command, "startup complete", pinned=False, **more)

    def directory_worker(self) -> Program:
        """A worker of the loop with a directory and mail, with as many threads as ours has."""
        threads = ("--pool", "threads", "--concurrency", "256", "--queues", "baseline")
        command = (*_celery("tests.bench.sides.directory"), *threads)
        return self.run("directory-worker", command, READY, pinned=True)

    def baseline_worker(self) -> Program:
        """The worker of the loop written by hand: two pool processes, which may go to any core."""
        pool = ("--pool", "prefork", "--concurrency", str(os.cpu_count() or 1))
        command = (*_celery("tests.bench.sides.baseline"), *pool)
        return self.run("baseline", command, READY, DJANGO_SETTINGS_MODULE="")

    def run(
        self,
        name: str,
        command: Sequence[str],
        says: str = "",
        *,
        pinned: bool = False,
        **more: str,
    ) -> Program:
        """Start a process, and wait until it says this; if `pinned` on a core of its own.

        It is stopped with the site, or earlier.
        """
        log = self.folder / f"{name}-{time.monotonic_ns()}.log"
        process = commands.start(command, log, env=os.environ | more)
        if pinned and (cores := spawn.list_cores()):
            before = sum(program.name == name for program in self.programs)
            os.sched_setaffinity(process.pid, {cores[before % len(cores)]})
        program = Program(name=name, process=process, log=log)
        self.programs.append(program)
        deadline = time.monotonic() + READY_WITHIN
        while says not in log.read_text():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.02)  # between two looks at what another process says
        return program

    def end(self, *ended: Program) -> None:
        for program in ended:
            commands.stop(program.process, 15.0)
            self.programs.remove(program)

    @contextmanager
    def untidied(self) -> Iterator[None]:
        """Postgres vacuums, analyzes and checkpoints nothing of its own accord for as long as the block lasts."""
        settings = {"autovacuum": "off", "checkpoint_timeout": "'1h'", "max_wal_size": "'16GB'"}
        with self.connect() as connection:
            for name, value in settings.items():
                connection.execute(f"ALTER SYSTEM SET {name} = {value}")
            connection.execute("SELECT pg_reload_conf()")
            try:
                yield
            finally:
                for name in settings:
                    connection.execute(f"ALTER SYSTEM RESET {name}")
                connection.execute("SELECT pg_reload_conf()")

    def kept(self, side: str) -> int:
        """Bytes of a side's tables, with their partitions, indexes and TOAST."""
        with self.connect() as connection:
            ((size,),) = connection.execute(KEPT, (side == "baseline",)).fetchall()
        return int(str(size))

    def seed(self, statement: LiteralString, *given: int, tables: Sequence[LiteralString]) -> None:
        """Write many rows, and let Postgres vacuum these tables."""
        with self.connect() as connection:
            connection.execute("SET synchronous_commit = off")
            connection.execute(statement, given)
            for table in tables:
                connection.execute(f"VACUUM ANALYZE {table}")
            connection.execute("CHECKPOINT")

    def postgres_cpu(self) -> float:
        """Seconds of processor time of Postgres and all its processes, those that ended included."""
        server = psutil.Process(self.postgres.pid)
        ended = server.cpu_times()
        total = cpu_of(server.pid) + ended.children_user + ended.children_system
        for child in server.children():
            with suppress(psutil.NoSuchProcess):
                total += cpu_of(child.pid)
        return float(total)


@contextmanager
def running() -> Iterator[Site]:
    """A site in a folder that goes with it. Everything that follows has its environment, this process included."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="signoff-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        place = servers.own(folder / "servers")
        cluster = servers.cluster(folder, place)
        settings = postgres.DURABLE | {"shared_preload_libraries": "pg_stat_statements"}
        database = stack.enter_context(servers.postgres_of(cluster, folder, settings))
        url, broker = stack.enter_context(servers.broker_of(folder, place))
        site = Site(folder, cluster, database, broker)
        (folder / "secret").touch(0o600)
        (folder / "secret").write_text(TOKEN)
        os.environ.update(
            **stack.enter_context(servers.outside(folder, TOKEN)),
            DJANGO_SETTINGS_MODULE="config.settings",
            DATABASE_URL=cluster.url(),
            REDIS_URL=url,
            SCIM_TOKEN=TOKEN,
            KEYS_DIR=str(folder / "keys"),
            STATIC_ROOT=str(folder / "static"),
            SECRET_KEY_FILE=str(folder / "secret"),
            PUBLIC_URL="http://127.0.0.1:8000",
            SIGNOFF_AGENTS=AGENTS,
            SIGNOFF_UNDO_SECONDS="0",
            NO_PROXY="127.0.0.1,localhost",
            PYTHONUNBUFFERED="1",
        )
        with site.connect() as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        prepared = commands.manage("prepare")
        assert prepared.returncode == 0, prepared.stderr
        try:
            yield site
        finally:
            site.end(*site.programs)


def cpu_of(pid: int) -> float:
    """Seconds of processor time of one process so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _command(name: str, bind: str = "") -> tuple[str, ...]:
    processes = list_processes(drain=5.0, bind=bind)
    return next(process.command for process in processes if process.name == name)


def _celery(app: str) -> tuple[str, ...]:
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    return (sys.executable, "-m", "celery", "-A", app, "worker", *quiet, "--loglevel", "INFO")
