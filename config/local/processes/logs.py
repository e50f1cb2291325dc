"""Manages the log files: one per process, rotated at each start. Those of three earlier starts are kept."""

import re
from pathlib import Path
from typing import IO

KEPT = 3
_FATAL = re.compile(r"(?:FATAL|PANIC): +(.+)")  # as Postgres writes them


def rotate(folder: Path) -> None:
    """Rotate the logs before a new start: name.log becomes name.1.log, and so on."""
    for newest in folder.glob("*.log"):
        stem = newest.name.removesuffix(".log")
        if "." in stem:
            continue
        for age in range(KEPT, 0, -1):
            younger = folder / (f"{stem}.{age - 1}.log" if age > 1 else newest.name)
            if younger.exists():
                younger.replace(folder / f"{stem}.{age}.log")


def append(folder: Path, name: str) -> IO[bytes]:
    """Open the log of a process for appending."""
    return (folder / f"{name}.log").open("ab")


def cause(folder: Path, name: str) -> str:
    """Return the cause of a server's end from its log, after a colon; empty if the log names none."""
    text = (folder / f"{name}.log").read_text(errors="replace")
    fatal = [one for one in _FATAL.findall(text) if not one.startswith("the database system is")]
    message = fatal[-1] if fatal else last_line(folder, name)
    return f": {message}" if message else ""


def last_line(folder: Path, name: str) -> str:
    """Return the last line of a process's log; empty if it wrote nothing."""
    lines = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
