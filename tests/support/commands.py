"""Commands of the checkout, in processes of their own and in this one."""

import io
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command

from config.env.environment import ROOT

WITHIN = 180.0
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
Process = subprocess.Popen[bytes]


def run(
    *command: object, env: Mapping[str, str] | None = None, told: str = "", folder: Path = ROOT
) -> "Done":
    """Run it in the checkout or another folder, with these variables alone if some are given."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=env,
        input=told,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
    )


def python(*words: object, env: Mapping[str, str] | None = None) -> "Done":
    return run(sys.executable, *words, env=env)


def manage(*words: object, env: Mapping[str, str] | None = None) -> "Done":
    return python("manage.py", *words, env=env)


def tried(*words: object) -> tuple[str, str]:
    """Call a command in this process. Return its output, and its error."""
    out = io.StringIO()
    try:
        call_command(*map(str, words), stdout=out)
    except CommandError as exc:
        return out.getvalue(), str(exc)
    return out.getvalue(), ""


def start(
    words: Sequence[object], log: Path, *, env: Mapping[str, str], folder: Path = ROOT, **more: Any
) -> Process:
    """Start a process in a session of its own that writes to a log."""
    command = [str(word) for word in words]
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **more,
        )


def stop(process: Process, within: float = 60.0) -> None:
    """Ask it to end, and see to it."""
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


Done = subprocess.CompletedProcess[str]
