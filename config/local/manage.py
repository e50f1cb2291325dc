"""`make manage`: a command of the application, run beside `make up` against the same data.

It runs as whoever typed it, who may read the files that the command is given, and as the owner of the tables in the
embedded Postgres: some commands migrate, grant or remove. What root makes in the
application's folders on the way is handed over to the application's account afterwards.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from config.env.environment import ROOT
from config.local import app_environment, orphans
from config.local import data_dir as homes
from config.local.data_dir import DataDir
from config.local.errors import Refused
from config.local.processes import users
from config.local.servers import broker, postgres, roles


def manage(folder: Path, words: Sequence[str], *, given: Mapping[str, str]) -> int:
    """The exit code of the command. Raises Refused if nothing runs on the folder."""
    if not words:
        raise Refused('say what to run, as in make manage CMD="people list"')
    home = homes.attach(folder)
    variables = _environment(home, given)
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *words], env=variables, check=False
        )
    except KeyboardInterrupt:
        return 130
    finally:
        homes.hand_over(home)
    return done.returncode


def _environment(home: DataDir, given: Mapping[str, str]) -> dict[str, str]:
    """As of the processes that run, with what was given now in the place of what was given to them."""
    sockets, ports, url = orphans.sockets(home), home.get("ports"), home.get("url")
    if sockets is None or ports is None or url is None:
        raise Refused(f"{home.folder} is not up yet: wait until Abeyance is ready, and try again")
    settings = app_environment.of_application(
        home,
        given,
        database=given.get("DATABASE_URL") or _database(home, sockets),
        broker=given.get("REDIS_URL") or broker.url(sockets),
        directory_port=ports["directory"],
        mailbox_port=ports["mailbox"],
        url=url,
    )
    if not given.get("DATABASE_URL"):
        settings |= app_environment.roles_to_grant()
    return app_environment.inherited(given, users.starter(), sockets) | settings


def _database(home: DataDir, sockets: Path) -> str:
    if not (home.servers / "postgres").exists():
        raise Refused(f"{home.folder} has no Postgres of its own: give DATABASE_URL as to make up")
    url = postgres.url(sockets, roles.OWNER, roles.of(home).passwords[roles.OWNER])
    try:
        psycopg.connect(url, connect_timeout=3).close()
    except psycopg.OperationalError as error:
        raise Refused(
            f"Postgres of {home.folder} does not answer: wait until Abeyance is ready, and try again"
        ) from error
    return url
