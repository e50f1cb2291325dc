"""The supervisor restarts dead processes, stops services in order, and leaves no process of a group."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from config.local.processes import spawn, users
from config.local.processes.reload import Reload
from config.local.processes.supervisor import STOP_SIGNALS, Service, SignalPipe, Stop, Supervisor


class Record:
    """Records the supervisor's lines and the order in which services stop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.pids: list[int] = []

    def service(
        self, name: str, code: str, *, stop_order: int = 1, stop_timeout: float = 5.0
    ) -> Service:
        def start() -> subprocess.Popen[bytes]:
            with (self.folder / "log").open("ab") as log:
                return spawn.start(
                    [sys.executable, "-c", code],
                    account=users.starter(),
                    environment=spawn.plain_environment(),
                    folder=self.folder,
                    log=log,
                )

        return Service(name=name, start=start, stop_order=stop_order, stop_timeout=stop_timeout)


@pytest.fixture
def pipe() -> Iterator[SignalPipe]:
    before = {number: signal.getsignal(number) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
    yield SignalPipe()
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path)


@pytest.fixture
def supervisor(pipe: SignalPipe, record: Record) -> Iterator[Supervisor]:
    supervisor = Supervisor(
        pipe, record.lines.append, lambda pids: setattr(record, "pids", list(pids))
    )
    yield supervisor
    supervisor.stop()


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


def _until(pipe: SignalPipe, condition: object) -> None:
    while not condition():  # type: ignore[operator]
        pipe.pause(0.05)


def test_a_process_that_dies_is_started_again(
    pipe: SignalPipe, supervisor: Supervisor, record: Record
) -> None:
    supervisor.start(record.service("worker", SLEEP))
    (first,) = record.pids
    psutil.Process(first).kill()

    def again() -> bool:
        supervisor.check()
        return record.pids not in ([], [first])

    _until(pipe, again)
    assert record.lines == ["worker ended (SIGKILL); again in 0.1 s", "worker is running again"]


def test_restart_pauses_grow_for_a_process_that_keeps_dying(
    pipe: SignalPipe, supervisor: Supervisor, record: Record
) -> None:
    supervisor.start(record.service("worker", "raise SystemExit(3)"))

    def thrice() -> bool:
        supervisor.check()
        return supervisor.ends("worker") == 3

    _until(pipe, thrice)
    ended = [line for line in record.lines if "ended" in line]
    assert ended == [
        f"worker ended (exit code 3); again in {pause} s" for pause in ("0.1", "0.2", "0.4")
    ]


def test_workers_are_replaced_and_killed_if_they_do_not_stop(
    pipe: SignalPipe, supervisor: Supervisor, record: Record
) -> None:
    stubborn = STUBBORN.replace("time.sleep", "print('up', flush=True); time.sleep")
    supervisor.start(record.service("worker", STOPPABLE.replace("{name}", "told"), stop_timeout=60))
    supervisor.start(record.service("stubborn", stubborn, stop_timeout=0.1))
    supervisor.start(record.service("web", SLEEP))
    before, log = list(record.pids), record.folder / "log"
    _until(pipe, lambda: log.read_text().count("up") == 2)
    supervisor.replace(lambda service: service.name != "web")
    kill_at = supervisor._services[0].kill_at
    supervisor.replace(lambda service: service.name != "web")
    assert supervisor._services[0].kill_at == kill_at  # it gets no more time

    def replaced() -> bool:
        supervisor.check()
        return len(record.pids) == 3 and not set(record.pids) & set(before[:2])

    _until(pipe, replaced)
    assert record.pids[2] == before[2]
    assert "told" in log.read_text()
    assert not [line for line in record.lines if "ended" in line]


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


def test_stages_are_stopped_one_after_the_other(
    pipe: SignalPipe, supervisor: Supervisor, record: Record
) -> None:
    for name, stop_order in (("database", 3), ("broker", 2), ("web", 1)):
        supervisor.start(
            record.service(name, STOPPABLE.replace("{name}", name), stop_order=stop_order)
        )
    log = record.folder / "log"
    _until(pipe, lambda: log.read_text().count("up ") == 3)
    supervisor.stop()
    assert log.read_text().split()[3:] == ["web", "broker", "database"]
    assert record.pids == []


def test_a_process_that_does_not_stop_is_killed_with_its_group(
    pipe: SignalPipe, supervisor: Supervisor, record: Record
) -> None:
    supervisor.start(record.service("stubborn", STUBBORN, stop_timeout=0.1))
    supervisor.start(record.service("parent", WITH_CHILD, stop_timeout=0.1))
    parent = psutil.Process(record.pids[1])
    _until(pipe, parent.children)
    everybody = [psutil.Process(pid) for pid in record.pids] + parent.children()
    supervisor.stop()
    _, alive = psutil.wait_procs(everybody, timeout=60)
    assert alive == []


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_stop_signal_ends_the_next_pause(pipe: SignalPipe, number: signal.Signals) -> None:
    signal.raise_signal(number)
    with pytest.raises(Stop):
        pipe.pause(600)


def test_a_process_starts_although_its_core_was_taken_away(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = spawn.start(
            [sys.executable, "-c", "print('here')"],
            account=users.starter(),
            environment=spawn.plain_environment(),
            folder=tmp_path,
            log=log,
            core=4095,
        )
    assert process.wait(60) == 0
    assert (tmp_path / "log").read_text() == "here\n"
