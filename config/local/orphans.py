"""What a start that was killed left running or lying about, found by proof and not by name.

A process is ours if its environment bears the mark of this data folder, or if it is the very one we
noted: same id and same time of birth. Postgres' own children are known by the data they work in.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from config.local import data_dir as homes
from config.local.data_dir import DataDir
from config.local.errors import DidNotStart
from config.local.processes.spawn import MARK

_SAME_BIRTH = 0.05  # seconds; the kernel keeps hundredths
_SOCKETS = "abeyance-"  # folders in the temporary folder that hold our sockets


def note(home: DataDir, sockets: Path, pids: Sequence[int]) -> None:
    """Remember what runs, for a start after we were killed."""
    noted = [{"pid": pid, "born": born} for pid in pids if (born := _born(pid)) is not None]
    homes.write(home.processes, {"sockets": str(sockets), "processes": noted})


def clear(home: DataDir) -> int:
    """End what is left of earlier starts of this folder and remove its sockets; how many processes it was."""
    known = _known(home)
    found = list({process.pid: process for process in _left(home, known)}.values())
    _end(found)
    _remove_sockets(known.get("sockets"))
    home.processes.unlink(missing_ok=True)
    return len(found)


def end_orphans(data: Path) -> None:
    """Kill what a dead Postgres has left in its data: no other starts there as long as one of them lives.

    They end by themselves, unless they wait for something that a killed one of them had. Raises DidNotStart if one
    cannot be killed.
    """
    orphans = [process for process in psutil.process_iter() if _works_in(process, data)]
    for process in orphans:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(orphans, timeout=4)
    if left := [process.pid for process in orphans if _works_in(process, data)]:
        raise DidNotStart(f"process {left[0]} of the Postgres that died in {data} does not end")


def forget(home: DataDir, sockets: Path) -> None:
    """Everything has stopped: nothing is left to find."""
    _remove_sockets(str(sockets))
    home.processes.unlink(missing_ok=True)


def sockets(home: DataDir) -> Path | None:
    """The folder of the sockets of what runs, None if nothing does."""
    folder = _known(home).get("sockets")
    return Path(folder) if folder else None


def _known(home: DataDir) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(home.processes.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return known


def _left(home: DataDir, known: dict[str, Any]) -> Iterator[psutil.Process]:
    noted = {entry["pid"]: entry["born"] for entry in known.get("processes", [])}
    data = home.servers / "postgres"
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error, OSError):
            if (
                _same(process, noted.get(process.pid))
                or process.environ().get(MARK) == home.id
                or _works_in(process, data)
            ):
                yield process


def _works_in(process: psutil.Process, data: Path) -> bool:
    """Whether this is a part of the Postgres that has its data there."""
    try:
        works: bool = process.name().startswith("postgres") and process.cwd() == str(data)
    except (psutil.Error, OSError):
        return False
    return works


def _same(process: psutil.Process, born: float | None) -> bool:
    return born is not None and abs(process.create_time() - born) < _SAME_BIRTH


def _born(pid: int) -> float | None:
    try:
        born: float = psutil.Process(pid).create_time()
    except psutil.Error:
        return None
    return born


def _end(processes: list[psutil.Process]) -> None:
    """Ask Postgres to stop quickly, which spares it a recovery; kill the rest, whose work is in Postgres."""
    for process in processes:
        with suppress(psutil.Error):
            is_postgres = process.name().startswith("postgres")
            process.send_signal(signal.SIGINT if is_postgres else signal.SIGKILL)
    _, alive = psutil.wait_procs(processes, timeout=4)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=4)


def _remove_sockets(folder: str | None) -> None:
    if folder and Path(folder).name.startswith(_SOCKETS):
        shutil.rmtree(folder, ignore_errors=True)
