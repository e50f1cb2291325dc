"""Everything that is measured, as real processes: Postgres, broker, directory, mailbox and workers.

Postgres is as durable as `make up` has it, with pg_stat_statements besides. The bench itself stands where
the web process would: it starts runs and decides, over Django's connection and the broker.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psutil
import psycopg

from config.env.environment import ROOT
from config.local.processes import sockets, spawn, users
from config.local.servers import binaries, broker, postgres
from config.local.servers.directory import TOKEN_VARIABLE
from config.processes import table

READY_WITHIN = 60.0
KEPT = """
    SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND (relname LIKE 'baseline_%%') = %s
"""
AGENTS = "agents.flows.hr,tests.bench.sides.agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A started process and its output."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def cpu(self) -> float:
        """Seconds of processor time so far, of all its threads and child processes."""
        return sum(cpu_of(process.pid) for process in self._tree())

    def memory(self) -> int:
        """Bytes of it and its child processes, with a fair share of what several processes have in common."""
        return int(sum(process.memory_full_info().pss for process in self._tree()))

    def wait_until_it_says(self, text: str) -> None:
        """Poll for a state of another process. Raises AssertionError with its output instead."""
        deadline = time.monotonic() + READY_WITHIN
        while text not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.02)

    def pool(self) -> list[psutil.Process]:
        """The processes that do the work: its child processes, or it itself."""
        process = psutil.Process(self.process.pid)
        return process.children() or [process]

    def _tree(self) -> list[psutil.Process]:
        process = psutil.Process(self.process.pid)
        return [process, *process.children(recursive=True)]

    def stop(self) -> None:
        """Ask it to end, and see to it."""
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Site:
    """One folder with servers of its own; use `running`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        self._programs: list[Program] = []
        account = users.unprivileged()
        servers = folder / "servers"
        servers.mkdir(mode=0o700)
        users.chown(account, [servers])
        self.cluster = postgres.Cluster(
            programs=binaries.postgres(account, folder / "programs"),
            data=servers / "postgres",
            socket=servers,
            account=account,
            password=secrets.token_hex(8),
        )
        self._broker = broker.Broker(
            program=binaries.broker(account, folder / "programs"),
            data=servers / "broker",
            socket=servers,
            account=account,
        )
        self.environment: dict[str, str] = {}

    def start(self) -> None:
        """Servers, tables, keys and the environment of everything that follows, this process included."""
        postgres.initialise(self.cluster)
        with (self.folder / "postgres.log").open("ab") as log:
            more = {"shared_preload_libraries": "pg_stat_statements"}
            self.postgres = postgres.start(self.cluster, log, postgres.DURABLE | more)
        with (self.folder / "broker.log").open("ab") as log:
            self.broker = broker.start(self._broker, log)
        self.environment = self._settings()
        os.environ.update(self.environment)
        with self.connect() as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        subprocess.run(
            [sys.executable, "manage.py", "prepare"],
            cwd=ROOT,
            env=os.environ,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        """Everything that was started, the servers last."""
        for program in reversed(self._programs):
            program.stop()
        if hasattr(self, "broker"):
            broker.stop(self.broker)
        if hasattr(self, "postgres"):
            postgres.stop(self.postgres)

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """An autocommit connection of the caller's own, without any limit of time."""
        return psycopg.connect(self.cluster.url(), autocommit=True)

    # Programs

    def worker(self, module: str = "config.worker", **more: str) -> Program:
        """One worker process of ours, as `make up` starts it, once it takes runs: on a core of its own.

        `module` runs it in another way.
        """
        words = [module if word == "config.worker" else word for word in _command("worker")]
        return self.ready("worker", words, more, core=self._core("worker"))

    def isolated_worker(self) -> Program:
        """The process that tries runs that lost their worker."""
        return self.ready("isolated", _command("isolated"))

    def sweeper(self) -> Program:
        return self.run("sweeper", _command("sweeper"))

    def directory_worker(self) -> Program:
        """A worker of the loop with a directory and mail: as many threads as ours has, on a core of its own."""
        threads = ("--pool", "threads", "--concurrency", "256", "--queues", "baseline")
        command = (*_celery("tests.bench.sides.directory"), *threads)
        return self.ready("directory-worker", command, core=self._core("directory-worker"))

    def baseline_worker(self) -> Program:
        """The worker of the loop written by hand: two pool processes, which may go to any core."""
        pool = ("--pool", "prefork", "--concurrency", str(os.cpu_count() or 1))
        without = {"DJANGO_SETTINGS_MODULE": ""}
        return self.ready("baseline", (*_celery("tests.bench.sides.baseline"), *pool), without)

    def ready(
        self,
        name: str,
        command: Sequence[str],
        more: Mapping[str, str] = {},
        core: int | None = None,
    ) -> Program:
        """Run a worker, once it takes tasks."""
        program = self.run(name, command, more, core)
        program.wait_until_it_says("ready.")
        return program

    def run(
        self,
        name: str,
        command: Sequence[str],
        more: Mapping[str, str] = {},
        core: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Program:
        """Start a process that is stopped with the site, or earlier; on one core, if it is given."""
        self._count += 1
        log = self.folder / f"{name}-{self._count}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **more},
                pass_fds=pass_fds,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        program = Program(name=name, process=process, log=log)
        self._programs.append(program)
        return program

    def end(self, *ended: Program) -> None:
        """Stop some of them now."""
        for program in ended:
            program.stop()
            self._programs.remove(program)

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

    def web(self, port: int) -> Program:
        program = self.run("web", _command("web", bind=f"127.0.0.1:{port}"))
        program.wait_until_it_says("startup complete")
        return program

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

    def _core(self, name: str) -> int | None:
        """The core of the next process of that name."""
        cores = spawn.cores()
        started = sum(program.name == name for program in self._programs)
        return cores[started % len(cores)] if cores else None

    def _settings(self) -> dict[str, str]:
        token = secrets.token_hex(8)
        (self.folder / "mail").mkdir()
        secret = self.folder / "secret"
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
        directory, mailbox = sockets.any_port(None), sockets.any_port(None)
        servers = (
            ("directory.server", directory, "directory.sqlite3"),
            ("mailbox", mailbox, "mail"),
        )
        for module, listener, data in servers:
            handle = listener.fileno()
            words = (f"config.local.servers.{module}", str(handle), str(self.folder / data))
            command = (sys.executable, "-m", *words)
            self.run(module, command, {TOKEN_VARIABLE: token}, pass_fds=[handle])
        return {
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "DATABASE_URL": self.cluster.url(),
            "REDIS_URL": self._broker.url(),
            "SCIM_URL": f"http://127.0.0.1:{sockets.port_of(directory)}/v2",
            "SCIM_TOKEN": token,
            "EMAIL_URL": f"smtp://127.0.0.1:{sockets.port_of(mailbox)}",
            "KEYS_DIR": str(self.folder / "keys"),
            "STATIC_ROOT": str(self.folder / "static"),
            "SECRET_KEY_FILE": str(secret),
            "PUBLIC_URL": "http://127.0.0.1:8000",
            "ABEYANCE_AGENTS": AGENTS,
            "NO_PROXY": "127.0.0.1,localhost",
            "PYTHONUNBUFFERED": "1",
        }


@contextmanager
def running() -> Iterator[Site]:
    """A site in a folder that goes with it."""
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="abeyance-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        site = Site(folder)
        try:
            site.start()
            yield site
        finally:
            site.stop()


def cpu_of(pid: int) -> float:
    """Seconds of processor time of one process so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _command(name: str, bind: str = "") -> tuple[str, ...]:
    processes = table(drain=5.0, bind=bind)
    return next(process.command for process in processes if process.name == name)


def _celery(app: str) -> tuple[str, ...]:
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    return (sys.executable, "-m", "celery", "-A", app, "worker", *quiet, "--loglevel", "INFO")


def _leave(*_: object) -> None:
    raise KeyboardInterrupt
