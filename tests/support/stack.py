"""The whole application, started exactly as `make up` starts it, for tests that look at it from outside."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from config.env.environment import ROOT
from config.local.http_client import request
from config.local.processes.spawn import MARK
from config.local.servers import postgres

READY_WITHIN = 180.0
STOPPED_WITHIN = 120.0  # a process that still runs then will never stop

_SCREEN = "  Stop     Ctrl-C"  # the last line of the screen

_SERVERS = ("DATABASE_URL", "REDIS_URL", "SCIM_URL", "SCIM_TOKEN", "EMAIL_URL", "PORT", "HOME_DIR")
_REAL = (*_SERVERS, "ABEYANCE_UNSAFE_POSTGRES", "ABEYANCE_WEB_ROLE", "ABEYANCE_WORKER_ROLE")


class Stack:
    """One data folder and, between start and stop, everything that runs on it.

    Choose a folder below one that others may pass through, as the fixture `sandbox` is, or Postgres
    has to keep its data elsewhere. `extra` are variables of the environment, a short lease for example.
    """

    def __init__(
        self, home: Path, *, port: int | None = None, demo: str = "", **extra: str
    ) -> None:
        self.home = home
        self.port = port
        self.demo = demo
        self.extra = extra
        self.said: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._heard = threading.Condition()
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def start(self) -> None:
        """Wait for the screen. Raise AssertionError with the output so far if it does not appear."""
        self.begin()
        with self._heard:
            self._heard.wait_for(lambda: _SCREEN in self.said or self._ended(), READY_WITHIN)
        if _SCREEN not in self.said:
            self.stop(signal.SIGTERM)
            raise AssertionError("\n".join(["the application did not come up:", *self.said]))

    def begin(self) -> None:
        """Start, and do not wait."""
        self.said = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "config.local", "up", "--home", str(self.home), *self._chosen()],
            cwd=ROOT,
            env=_environment(self.extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._listen, args=[self._process])
        self._reader.start()

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the launcher like Ctrl-C, and wait for its end."""
        process = self._running()
        process.send_signal(number)
        process.wait(STOPPED_WITHIN)
        self._forget()

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
        self._forget()

    def kill_launcher(self) -> list[psutil.Process]:
        """Kill the launcher alone with SIGKILL. Return its children, some of which may live on."""
        process = self._running()
        started = self.processes()
        process.kill()
        process.wait()
        self._forget()
        return started

    def wait_for_line(self, text: str, within: float = 60.0) -> None:
        """Wait until the launcher has printed a text."""
        with self._heard:
            heard = self._heard.wait_for(lambda: any(text in line for line in self.said), within)
        assert heard, "\n".join(self.said)

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
        return postgres.url(Path(sockets), postgres.SUPERUSER, password)

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

    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "the stack is not running"
        return self._process

    def _forget(self) -> None:
        assert self._reader is not None
        self._reader.join(STOPPED_WITHIN)
        self._running().stdout.close()  # type: ignore[union-attr]
        self._process = None

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._heard:
                self.said.append(line.rstrip("\n"))
                self._heard.notify_all()
        process.wait()
        with self._heard:
            self._heard.notify_all()

    def _ended(self) -> bool:
        return self._running().poll() is not None

    def _chosen(self) -> list[str]:
        port = [] if self.port is None else ["--port", str(self.port)]
        return [*port, *(["--demo", self.demo] if self.demo else [])]


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name not in (*_REAL, MARK)}
    return ours | {"ABEYANCE_WORKERS": "1"} | dict(extra)


def _mark_of(process: psutil.Process) -> str | None:
    try:
        mark: str | None = process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None
    return mark


def shared_folder(sandbox: Path, name: str) -> Path:
    """A folder for workers, which may run under another account."""
    folder = sandbox / name
    folder.mkdir()
    folder.chmod(0o777)
    return folder
