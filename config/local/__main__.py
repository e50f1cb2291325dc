"""`python -m config.local up` and `… manage`: what `make up` and `make manage` run.

`manage` runs a command of the application on the data of a running `make up`, under the caller's account, which can
read the files named on its command line. It logs in to the embedded Postgres as the owner of the tables, because some
commands migrate, grant or delete. Files that root makes in the application's folders are given to the application's
account afterwards.
"""

import argparse
import errno
import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from config.env.environment import ROOT
from config.local import app_environment, data_dir, orphans
from config.local.errors import LocalError, Refused
from config.local.processes import users
from config.local.servers import broker, postgres
from config.local.up import run_stack

DEMO = {"": None, "0": False, "1": True}
RELOAD = {"": False, "0": False, "1": True}
NO_SPACE = os.strerror(errno.ENOSPC)


def main(arguments: Sequence[str]) -> int:
    """Run `up` or `manage`. Return the exit code; errors are printed in one line."""
    parser = argparse.ArgumentParser(prog="config.local", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("up", help="run everything on this machine")
    command.set_defaults(door=_run_up_command)
    command.add_argument("--port", help="the port of the web server", default="")
    command.add_argument("--host", help="the address of the web server", default="127.0.0.1")
    command.add_argument("--demo", help="0: no demo people and runs", default="")
    command.add_argument("--reload", help="1: new workers when the agents change", default="")
    manage_command = commands.add_parser(
        "manage", help="run a command on the data of the running make up"
    )
    manage_command.set_defaults(
        door=lambda options, folder: manage(folder, options.words, environ=dict(os.environ))
    )
    manage_command.add_argument("words", nargs="*", help="after --, as in -- people list")
    for subcommand in (command, manage_command):
        subcommand.add_argument(
            "--home",
            help=f"the data folder (default: {data_dir.choose_default_folder()})",
            default="",
        )
    options = parser.parse_args(arguments)
    folder = Path(options.home).expanduser() if options.home else data_dir.choose_default_folder()
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - keeps symbolic links
    try:
        code: int = options.door(options, folder)
    except (LocalError, OSError) as problem:
        print(f"signoff: {_explain_problem(problem, folder)}", file=sys.stderr, flush=True)
        return 1
    return code


def _explain_problem(problem: Exception, folder: Path) -> str:
    """Return the error in one line. A full disk always gets the same line."""
    if NO_SPACE in str(problem):
        return f"the disk of {folder} is full: make room and start again"
    return " ".join(str(problem).split())


def _run_up_command(options: argparse.Namespace, folder: Path) -> int:
    if options.port and not options.port.isdecimal():
        raise Refused(f"PORT must be a number, not {options.port!r}")
    if options.demo not in DEMO:
        raise Refused(f"DEMO must be 0 or 1, not {options.demo!r}")
    if options.reload not in RELOAD:
        raise Refused(f"RELOAD must be 0 or 1, not {options.reload!r}")
    run_stack(
        folder,
        host=options.host,
        port=int(options.port) if options.port else None,
        environ=dict(os.environ),
        say=functools.partial(print, flush=True),
        with_demo=DEMO[options.demo],
        reload=RELOAD[options.reload],
    )
    return 0


def manage(folder: Path, words: Sequence[str], *, environ: Mapping[str, str]) -> int:
    """Run the command. Return its exit code. Raise Refused if no `make up` runs on the folder."""
    if not words:
        raise Refused('say what to run, as in make manage CMD="people list"')
    home = data_dir.attach(folder)
    sockets, ports, url = orphans.find_sockets_folder(home), home.get("ports"), home.get("url")
    if sockets is None or ports is None or url is None:
        raise Refused(f"{home.folder} is not up yet: wait until Signoff is ready, and try again")
    database = environ.get("DATABASE_URL")
    settings = app_environment.build_variables(
        home,
        environ,
        database=database or _build_owner_url(home, sockets),
        broker=environ.get("REDIS_URL") or broker.build_broker_url(sockets),
        directory_port=ports["directory"],
        mailbox_port=ports["mailbox"],
        url=url,
    )
    if not database:
        settings |= app_environment.list_roles_to_grant()
    # The environment of the running processes, overridden by the variables given to this command.
    variables = (
        app_environment.build_inherited_variables(environ, users.read_starter_account(), sockets)
        | settings
    )
    try:
        process = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *words], env=variables, check=False
        )
    except KeyboardInterrupt:
        return 130
    finally:
        data_dir.hand_over(home)
    return process.returncode


def _build_owner_url(home: data_dir.DataDir, sockets: Path) -> str:
    if not (home.servers / "postgres").exists():
        raise Refused(f"{home.folder} has no Postgres of its own: give DATABASE_URL as to make up")
    url = postgres.build_postgres_url(
        sockets, postgres.OWNER, postgres.read_roles(home).passwords[postgres.OWNER]
    )
    try:
        psycopg.connect(url, connect_timeout=3).close()
    except psycopg.OperationalError as error:
        raise Refused(
            f"Postgres of {home.folder} does not answer: wait until Signoff is ready, and try again"
        ) from error
    return url


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
