"""`make manage`: runs a command of the application on the data of a running `make up`.

The command runs under the caller's account, which can read the files named on its command line. It logs in to the
embedded Postgres as the owner of the tables, because some commands migrate, grant or delete. Files that root makes in
the application's folders are given to the application's account afterwards.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from config.env.environment import ROOT
from config.local import app_environment, data_dir, orphans
from config.local.data_dir import DataDir
from config.local.errors import Refused
from config.local.processes import users
from config.local.servers import broker, postgres


def manage(folder: Path, words: Sequence[str], *, environ: Mapping[str, str]) -> int:
    """Run the command. Return its exit code. Raise Refused if no `make up` runs on the folder."""
    if not words:
        raise Refused('say what to run, as in make manage CMD="people list"')
    home = data_dir.attach(folder)
    variables = _environment(home, environ)
    try:
        process = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *words], env=variables, check=False
        )
    except KeyboardInterrupt:
        return 130
    finally:
        data_dir.hand_over(home)
    return process.returncode


def _environment(home: DataDir, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the running processes, overridden by the variables given to this command."""
    sockets, ports, url = orphans.sockets(home), home.get("ports"), home.get("url")
    if sockets is None or ports is None or url is None:
        raise Refused(f"{home.folder} is not up yet: wait until Signoff is ready, and try again")
    settings = app_environment.of_application(
        home,
        environ,
        database=environ.get("DATABASE_URL") or _database(home, sockets),
        broker=environ.get("REDIS_URL") or broker.url(sockets),
        directory_port=ports["directory"],
        mailbox_port=ports["mailbox"],
        url=url,
    )
    if not environ.get("DATABASE_URL"):
        settings |= app_environment.roles_to_grant()
    return app_environment.inherited(environ, users.starter(), sockets) | settings


def _database(home: DataDir, sockets: Path) -> str:
    if not (home.servers / "postgres").exists():
        raise Refused(f"{home.folder} has no Postgres of its own: give DATABASE_URL as to make up")
    url = postgres.url(sockets, postgres.OWNER, postgres.roles_of(home).passwords[postgres.OWNER])
    try:
        psycopg.connect(url, connect_timeout=3).close()
    except psycopg.OperationalError as error:
        raise Refused(
            f"Postgres of {home.folder} does not answer: wait until Signoff is ready, and try again"
        ) from error
    return url
