"""The whole application, started exactly as `make up` starts it, for tests that look at it from outside."""

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, LiteralString, Self

import psutil
import psycopg

from config.local.app_environment import HR
from config.local.http_client import Unreachable, request
from config.local.processes.spawn import MARK
from config.local.servers import postgres
from tests.support import commands, forks
from tests.support.scripted_agents import ledger

READY_WITHIN = 180.0
STOPPED_WITHIN = 120.0  # a process that still runs then will never stop

_SCREEN = "  Stop     Ctrl-C"  # the last line of the screen

PREPARED = "PREPARED_INSTALLATION"  # variable: where several processes of tests share one

_SERVERS = ("DATABASE_URL", "REDIS_URL", "SCIM_URL", "SCIM_TOKEN", "EMAIL_URL", "PORT", "HOME_DIR")
_REAL = (*_SERVERS, "SIGNOFF_UNSAFE_POSTGRES", "SIGNOFF_WEB_ROLE", "SIGNOFF_WORKER_ROLE")


class Stack:
    """One data folder and, between start and stop, everything that runs on it.

    Choose a folder below one that others may pass through, as the fixture `sandbox` is, or Postgres
    has to keep its data elsewhere. `extra` are variables of the environment, a short lease for example. Without
    SIGNOFF_AGENTS among them there are no invoices, which come while a test looks at something else.

    Its processes are forks of one that has imported everything, unless `forked` is False.

    The first `start` copies a folder with tables, keys and people; `begin` makes all of that itself.
    """

    def __init__(self, home: Path, *, demo: str = "", **extra: str) -> None:
        self.home = home
        self.forked = True
        self.demo = demo
        self.extra = extra
        self._log = home.with_name(f"{home.name}.out")
        self._process: commands.Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def start(self) -> None:
        """Wait for the screen. Raise AssertionError with the output so far if it does not appear."""
        if not (self.demo or "DATABASE_URL" in self.extra or self.home.exists()):
            _copy_prepared(self.home)
        self.begin()
        try:
            self.wait_for_line(_SCREEN, READY_WITHIN)
        except AssertionError:
            self.stop(signal.SIGTERM)
            raise

    def begin(self) -> None:
        """Start, and do not wait."""
        self._log.unlink(missing_ok=True)
        words = [sys.executable, "-m", "config.local", "up", "--home", self.home]
        words += ["--demo", self.demo] if self.demo else []
        ours = {name: value for name, value in os.environ.items() if name not in (*_REAL, MARK)}
        environment = ours | {"SIGNOFF_WORKERS": "1", "SIGNOFF_AGENTS": HR} | self.extra
        begin = forks.start if self.forked else commands.start
        self._process = begin(words, self._log, env=environment)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the launcher like Ctrl-C, and wait for its end."""
        process = self._running()
        process.send_signal(number)
        process.wait(STOPPED_WITHIN)
        self._process = None

    def kill_everything(self) -> None:
        """kill -9 of the launcher and of everything it started, returning when all of it is gone."""
        process = self._running()
        everything = [psutil.Process(process.pid)] if process.poll() is None else []
        everything += self.processes()
        for one in everything:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()
        psutil.wait_procs(everything, timeout=STOPPED_WITHIN)
        self._process = None

    def kill_launcher(self) -> list[psutil.Process]:
        """Kill the launcher alone with SIGKILL. Return its children, some of which may live on."""
        process = self._running()
        started = self.processes()
        process.kill()
        process.wait()
        self._process = None
        return started

    def wait_for_line(self, text: str, within: float = 60.0) -> None:
        deadline = time.monotonic() + within
        while True:
            goes_on = self._running().poll() is None
            if any(text in line for line in self.said):
                return
            assert goes_on, "\n".join(self.said)
            assert time.monotonic() < deadline, "\n".join(self.said)
            time.sleep(0.02)  # between two looks at what another process says

    @property
    def said(self) -> list[str]:
        """What the launcher printed since its last start."""
        return self._log.read_text().splitlines()

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def pid(self) -> int:
        """The launcher's."""
        return self._running().pid

    @property
    def credentials(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.home / "credentials.json").read_text())
        return content

    @property
    def url(self) -> str:
        return str(self.credentials["url"])

    @property
    def superuser_url(self) -> str:
        """Return the address of the embedded Postgres for its superuser, which no process of the application uses."""
        sockets = json.loads((self.home / "processes.json").read_text())["sockets"]
        password = json.loads((self.home / "secrets.json").read_text())["postgres_superuser"]
        return postgres.build_postgres_url(Path(sockets), postgres.SUPERUSER, password)

    def rows(self, query: LiteralString, *given: object) -> list[tuple[Any, ...]]:
        """Ask the embedded Postgres as its superuser. Raise Unreachable while there is none."""
        try:
            with psycopg.connect(self.superuser_url, connect_timeout=2) as connection:
                return connection.execute(query, given or None).fetchall()
        except (psycopg.OperationalError, OSError) as error:
            raise Unreachable(str(error)) from error

    def ask(
        self, person: str, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, Any]:
        """Send a request to the API with a person's token; `path` starts with /api/v1 or is another address."""
        known = self.credentials
        return request(known["url"], method, path, token=known["users"][person]["token"], body=body)

    def processes(self) -> list[psutil.Process]:
        """Everything that runs on this folder, except the launcher."""
        identity = json.loads((self.home / "home.json").read_text())["id"]
        found = {one.pid: one for one in psutil.process_iter() if _mark_of(one) == identity}
        for parent in list(found.values()):
            with suppress(psutil.NoSuchProcess):
                found |= {child.pid: child for child in parent.children(recursive=True)}
        return list(found.values())

    def named(self, word: str) -> list[psutil.Process]:
        """Those of them that are a program of this name, or have it on their command line, the oldest first."""
        found = []
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):  # servers' children come and go
                if word in (process.name(), *process.cmdline()):
                    found.append((process.create_time(), process.pid, process))
        return [process for *_, process in sorted(found)]

    def _running(self) -> commands.Process:
        assert self._process is not None, "the stack is not running"
        return self._process


def _mark_of(process: psutil.Process) -> str | None:
    try:
        mark: str | None = process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None
    return mark


def _copy_prepared(home: Path) -> None:
    """Make a data folder with the tables and people of the prepared one, which the first process makes."""
    place = Path(os.environ.get(PREPARED) or home.parent)
    source, made_as = place / "prepared", place / "preparing"
    with (place / "prepared.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not source.exists():
            _prepare(made_as)
            made_as.rename(source)
    commands.run("cp", "-a", source, home).check_returncode()
    path = home / "credentials.json"
    path.write_text(path.read_text().replace(str(made_as), str(home)))


def _prepare(home: Path) -> None:
    """Start an empty installation until it has tables and people. It forgets its id, ports and logs."""
    stack = Stack(home)
    stack.begin()
    stack.wait_for_line("Starting web, worker and sweeper", READY_WITHIN)
    stack.stop()
    assert (home / "servers").exists(), f"{home} is closed to the account of Postgres"
    shutil.rmtree(home / "logs")
    path = home / "home.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps({name: known[name] for name in known.keys() - {"id", "ports"}}))


def with_ledger(sandbox: Path, name: str, agents: str, **extra: str) -> tuple[Stack, Path]:
    """A stack whose agents' tools write to a ledger, and the ledger."""
    folder = sandbox / f"{name}-effects"
    folder.mkdir()
    folder.chmod(0o777)  # workers may run under another account
    book = folder / "ledger"
    settings = {"SIGNOFF_LEASE_SECONDS": "2", "SIGNOFF_AGENTS": agents, ledger.PATH: str(book)}
    return Stack(sandbox / name, **(settings | extra)), book
