"""`python -m config.local up`: what `make up` runs."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from config.local import home
from config.local.errors import LocalError
from config.local.up import up

NO_SPACE = os.strerror(errno.ENOSPC)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="config.local", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("up", help="run everything on this machine")
    command.add_argument("--home", help="the data folder (default: %(default)s)", default="")
    command.add_argument("--port", help="the port of the web server", default="")
    command.add_argument("--host", help="the address of the web server", default="127.0.0.1")
    chosen = parser.parse_args(arguments)
    if chosen.port and not chosen.port.isdecimal():
        return _refuse(f"PORT must be a number, not {chosen.port!r}")
    folder = Path(chosen.home).expanduser() if chosen.home else home.default()
    try:
        up(
            Path(os.path.abspath(folder)),  # noqa: PTH100 - symbolic links stay as they were given
            host=chosen.host,
            port=int(chosen.port) if chosen.port else None,
            given=dict(os.environ),
            say=_say,
        )
    except (LocalError, OSError) as problem:
        return _refuse(_explained(problem, folder))
    return 0


def _explained(problem: Exception, folder: Path) -> str:
    """One line, wherever it was that the disk ran full."""
    if NO_SPACE in str(problem):
        return f"the disk of {folder} is full: make room and start again"
    return " ".join(str(problem).split())


def _say(line: str) -> None:
    print(line, flush=True)


def _refuse(problem: str) -> int:
    print(f"abeyance: {problem}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
