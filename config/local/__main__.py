"""`python -m config.local up` and `… manage`: what `make up` and `make manage` run."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from config.local import data_dir
from config.local.errors import LocalError, Refused
from config.local.manage import manage
from config.local.up import up

DEMO = {"": None, "0": False, "1": True}
RELOAD = {"": False, "0": False, "1": True}
NO_SPACE = os.strerror(errno.ENOSPC)


def main(arguments: Sequence[str]) -> int:
    """Run `up` or `manage`. Return the exit code; errors are printed in one line."""
    parser = argparse.ArgumentParser(prog="config.local", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("up", help="run everything on this machine")
    command.set_defaults(door=_up)
    command.add_argument("--port", help="the port of the web server", default="")
    command.add_argument("--host", help="the address of the web server", default="127.0.0.1")
    command.add_argument("--demo", help="0: no demo people and runs", default="")
    command.add_argument("--reload", help="1: new workers when the agents change", default="")
    manage_command = commands.add_parser(
        "manage", help="run a command on the data of the running make up"
    )
    manage_command.set_defaults(door=_manage)
    manage_command.add_argument("words", nargs="*", help="after --, as in -- people list")
    for subcommand in (command, manage_command):
        subcommand.add_argument(
            "--home", help=f"the data folder (default: {data_dir.default()})", default=""
        )
    options = parser.parse_args(arguments)
    folder = Path(options.home).expanduser() if options.home else data_dir.default()
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - keeps symbolic links
    try:
        code: int = options.door(options, folder)
    except (LocalError, OSError) as problem:
        return _refuse(_explained(problem, folder))
    return code


def _up(options: argparse.Namespace, folder: Path) -> int:
    if options.port and not options.port.isdecimal():
        raise Refused(f"PORT must be a number, not {options.port!r}")
    if options.demo not in DEMO:
        raise Refused(f"DEMO must be 0 or 1, not {options.demo!r}")
    if options.reload not in RELOAD:
        raise Refused(f"RELOAD must be 0 or 1, not {options.reload!r}")
    up(
        folder,
        host=options.host,
        port=int(options.port) if options.port else None,
        environ=dict(os.environ),
        say=_print,
        with_demo=DEMO[options.demo],
        reload=RELOAD[options.reload],
    )
    return 0


def _manage(options: argparse.Namespace, folder: Path) -> int:
    return manage(folder, options.words, environ=dict(os.environ))


def _explained(problem: Exception, folder: Path) -> str:
    """Return the error in one line. A full disk always gets the same line."""
    if NO_SPACE in str(problem):
        return f"the disk of {folder} is full: make room and start again"
    return " ".join(str(problem).split())


def _print(line: str) -> None:
    print(line, flush=True)


def _refuse(problem: str) -> int:
    print(f"signoff: {problem}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
