"""Processes: restarts, replacements and stops by the supervisor, orphans of an earlier start, and ports."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from config.local import data_dir, orphans
from config.local.data_dir import DataDir
from config.local.errors import Refused
from config.local.processes import sockets, spawn, users
from config.local.processes.spawn import MARK
from config.local.processes.supervisor import STOP_SIGNALS, Service, SignalPipe, Stop, Supervisor
from config.local.up import Reload


class Office:
    """A supervisor, with the lines that it says and the processes that it recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.log.touch()
        self.lines: list[str] = []
        self.pids: list[int] = []
        self.pipe = SignalPipe()
        self.supervisor = Supervisor(self.pipe, self.lines.append, self._record)

    def spawn(self, code: str, core: int | None = None) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return spawn.start(
                [sys.executable, "-c", code],
                account=users.read_starter_account(),
                environment=spawn.build_plain_environment(),
                folder=self.folder,
                log=log,
                core=core,
            )

    def start(self, name: str, code: str, **options: float) -> None:
        given: dict[str, Any] = {"stop_order": 1, "stop_timeout": 5.0, **options}
        self.supervisor.start(Service(name=name, start=lambda: self.spawn(code), **given))

    def wait_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.pipe.pause(0.05)

    def wait_for_up(self, count: int) -> None:
        self.wait_until(lambda: self.log.read_text().count("up") == count)

    def _record(self, pids: Iterable[int]) -> None:
        self.pids = list(pids)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    before = {number: signal.getsignal(number) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
    office = Office(tmp_path)
    yield office
    office.supervisor.stop()
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


SLEEP = "import time; time.sleep(600)"
# Writes its name to the log at a stop signal.
STOPPABLE = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"{name} "), sys.exit()))
os.write(1, b"up ")
signal.pause()
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
WITH_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"


def test_restart_pauses_grow_for_a_process_that_keeps_dying(office: Office) -> None:
    office.start("worker", "raise SystemExit(3)")

    def thrice() -> bool:
        office.supervisor.check()
        return office.supervisor.ends("worker") == 3

    office.wait_until(thrice)
    ended = [line for line in office.lines if "ended" in line]
    assert ended == [
        f"worker ended (exit code 3); again in {pause} s" for pause in ("0.1", "0.2", "0.4")
    ]


def test_workers_are_replaced_and_killed_if_they_do_not_stop(office: Office) -> None:
    stubborn = STUBBORN.replace("time.sleep", "print('up', flush=True); time.sleep")
    office.start("worker", STOPPABLE.replace("{name}", "told"), stop_timeout=60)
    office.start("stubborn", stubborn, stop_timeout=0.1)
    office.start("web", SLEEP)
    before, supervisor = list(office.pids), office.supervisor
    office.wait_for_up(2)
    supervisor.replace(lambda service: service.name != "web")
    kill_at = supervisor._services[0].kill_at
    supervisor.replace(lambda service: service.name != "web")
    assert supervisor._services[0].kill_at == kill_at  # it gets no more time

    def replaced() -> bool:
        supervisor.check()
        return len(office.pids) == 3 and not set(office.pids) & set(before[:2])

    office.wait_until(replaced)
    assert office.pids[2] == before[2]
    assert "told" in office.log.read_text()
    assert not [line for line in office.lines if "ended" in line]


def test_changed_or_removed_files_that_load_replace_the_workers(tmp_path: Path) -> None:
    shop, mistake, done = tmp_path / "shop.py", [""], list[str]()
    shop.touch()
    (tmp_path / ".venv").mkdir()
    reload = Reload(
        tmp_path, load=lambda: mistake[0], replace=lambda: done.append("replaced"), say=done.append
    )
    (tmp_path / ".venv" / "package.py").touch()
    (tmp_path / "dangling.py").symlink_to("nowhere")
    reload.check()
    assert done == []
    mistake[0] = "new.py:1: ZeroDivisionError"
    (tmp_path / "new.py").write_text("1 / 0")
    reload.check()
    reload.check()
    mistake[0] = ""
    for change in (lambda: (tmp_path / "new.py").write_text(""), shop.unlink):
        change()
        reload.check()
    assert done == [
        "Not reloaded: new.py:1: ZeroDivisionError",
        *(f"Reloading, because {tmp_path}/new.py has changed", "replaced"),
        *(f"Reloading, because {shop} has changed", "replaced"),
    ]


def test_stages_are_stopped_one_after_the_other(office: Office) -> None:
    for name, stop_order in (("database", 3), ("broker", 2), ("web", 1)):
        office.start(name, STOPPABLE.replace("{name}", name), stop_order=stop_order)
    office.wait_for_up(3)
    office.supervisor.stop()
    assert office.log.read_text().split()[3:] == ["web", "broker", "database"]
    assert office.pids == []


def test_a_process_that_does_not_stop_is_killed_with_its_group(office: Office) -> None:
    office.start("stubborn", STUBBORN, stop_timeout=0.1)
    office.start("parent", WITH_CHILD, stop_timeout=0.1)
    parent = psutil.Process(office.pids[1])
    office.wait_until(parent.children)
    everybody = [psutil.Process(pid) for pid in office.pids] + parent.children()
    office.supervisor.stop()
    _, alive = psutil.wait_procs(everybody, timeout=60)
    assert alive == []


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_stop_signal_ends_the_next_pause(office: Office, number: signal.Signals) -> None:
    signal.raise_signal(number)
    with pytest.raises(Stop):
        office.pipe.pause(600)


def test_a_process_starts_although_its_core_was_taken_away(office: Office) -> None:
    process = office.spawn("print('here')", core=4095)
    assert process.wait(60) == 0
    assert office.log.read_text() == "here\n"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[DataDir]:
    home = data_dir.open_home(tmp_path / "home", users.read_starter_account())
    yield home
    os.close(home.lock)


def _waiting(extra: dict[str, str]) -> subprocess.Popen[str]:
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | extra,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"  # its environment is complete now
    return process


def test_only_processes_that_are_ours_are_ended(home: DataDir) -> None:
    with (
        _waiting({MARK: home.id}) as marked,
        _waiting({MARK: "another"}) as foreign,
        _waiting({}) as recorded,
        _waiting({}) as reusing,
    ):
        alive = [psutil.Process(process.pid) for process in (marked, recorded)]
        orphans.record_processes(home, home.folder, [recorded.pid])
        assert orphans.clear(home) == 2
        assert not [process for process in alive if process.is_running()]
        born = psutil.Process(reusing.pid).create_time() - 60
        data_dir.write(home.processes, {"processes": [{"pid": reusing.pid, "born": born}]})
        assert orphans.clear(home) == 0
        for process in (foreign, reusing):
            assert process.poll() is None
            process.kill()


def test_only_a_folder_of_sockets_is_removed(home: DataDir, tmp_path: Path) -> None:
    for name, stays in (("signoff-x", False), ("precious", True)):
        folder = tmp_path / name
        folder.mkdir()
        orphans.record_processes(home, folder, [])
        orphans.clear(home)
        assert folder.exists() == stays


def test_a_requested_port_is_taken_or_refused_else_the_next_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = sockets.read_port(taken)
        with pytest.raises(Refused, match=f"^port {port} is taken: choose another with PORT="):
            sockets.listen_for_web("127.0.0.1", port)
    with pytest.raises(Refused):
        sockets.listen_for_web("127.0.0.1", 70_000)
    with (
        sockets.listen_for_web("127.0.0.1", None) as one,
        sockets.listen_for_web("127.0.0.1", None) as two,
    ):
        assert sockets.FIRST_PORT <= sockets.read_port(one) < sockets.read_port(two)


def test_the_port_of_the_last_start_is_taken_again_if_it_is_free() -> None:
    with sockets.listen_on_any_port(None) as first:
        port = sockets.read_port(first)
        with sockets.listen_on_any_port(port) as other:
            assert sockets.read_port(other) != port
    with sockets.listen_on_any_port(port) as again:
        assert sockets.read_port(again) == port


def test_an_address_that_others_can_reach_is_refused() -> None:
    for host in ("127.0.0.2", "::1", "localhost"):
        sockets.require_loopback(host)
    for host in ("0.0.0.0", "::", "192.0.2.1", "signoff.example", ""):  # noqa: S104
        with pytest.raises(Refused):
            sockets.require_loopback(host)
