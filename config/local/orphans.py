"""Ends the processes and removes the sockets that a killed start left behind.

A process is ours if its environment has the mark of this data folder, or if we recorded its id and start time.
Postgres' own children are identified by the data folder that they work in.
"""

import json
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from config.local import data_dir
from config.local.errors import DidNotStart
from config.local.processes.spawn import MARK

_SAME_BIRTH = 0.05  # seconds; the kernel stores hundredths
_SOCKETS = "signoff-"  # folders in the temporary folder that hold our sockets


def record_processes(home: data_dir.DataDir, sockets: Path, pids: Sequence[int]) -> None:
    """Record the running processes, for the next start if we are killed."""
    noted = []
    for pid in pids:
        with suppress(psutil.Error):
            noted.append({"pid": pid, "born": psutil.Process(pid).create_time()})
    data_dir.write(home.processes, {"sockets": str(sockets), "processes": noted})


def clear(home: data_dir.DataDir) -> int:
    """End the orphans of earlier starts of this folder and remove their sockets. Return the number of processes."""
    recorded = _read_record(home)
    births = {entry["pid"]: entry["born"] for entry in recorded.get("processes", [])}
    orphans = {}
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error, OSError):
            born = births.get(process.pid)
            if (
                (born is not None and abs(process.create_time() - born) < _SAME_BIRTH)
                or process.environ().get(MARK) == home.id
                or _is_postgres_of(process, home.servers / "postgres")
            ):
                orphans[process.pid] = process
    _end_processes([*orphans.values()])
    _remove_sockets(recorded.get("sockets"))
    home.processes.unlink(missing_ok=True)
    return len(orphans)


def end_orphans(data: Path) -> None:
    """Kill the children of a dead Postgres, because no other Postgres starts on their data while one lives.

    They end by themselves, unless they wait for a lock of a killed one. Raise DidNotStart if one cannot be killed.
    """
    orphans = [process for process in psutil.process_iter() if _is_postgres_of(process, data)]
    for process in orphans:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(orphans, timeout=4)
    if survivors := [process.pid for process in orphans if _is_postgres_of(process, data)]:
        raise DidNotStart(
            f"process {survivors[0]} of the Postgres that died in {data} does not end"
        )


def remove(home: data_dir.DataDir, sockets: Path) -> None:
    """Delete the record and the sockets after all processes have stopped."""
    _remove_sockets(str(sockets))
    home.processes.unlink(missing_ok=True)


def find_sockets_folder(home: data_dir.DataDir) -> Path | None:
    """Return the folder of the running start's sockets, None if none runs."""
    folder = _read_record(home).get("sockets")
    return Path(folder) if folder else None


def _read_record(home: data_dir.DataDir) -> dict[str, Any]:
    try:
        recorded: dict[str, Any] = json.loads(home.processes.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return recorded


def _is_postgres_of(process: psutil.Process, data: Path) -> bool:
    """Return whether the process belongs to the Postgres with this data folder."""
    try:
        works: bool = process.name().startswith("postgres") and process.cwd() == str(data)
    except (psutil.Error, OSError):
        return False
    return works


def _end_processes(processes: list[psutil.Process]) -> None:
    """Stop Postgres with a fast shutdown, which avoids a recovery. Kill all others: their state is in Postgres."""
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
