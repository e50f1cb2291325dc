"""A real PgBouncer before a Postgres of the tests, set up by the lines that docker-compose.yml has."""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from config.local.processes import users
from tests.support import commands, servers
from tests.support.deployment import compose

BINARY = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
PREPARES = (1, 22)  # the first version that knows all that psycopg says about prepared statements
WITHIN = 30.0


@cache
def version() -> tuple[int, ...] | None:
    """Return the version of PgBouncer on this machine, None if there is none."""
    if not Path(BINARY).exists():
        return None
    said = commands.run(BINARY, "--version").stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
    assert found, said
    return (int(found[1]), int(found[2]))


def settings(*without: str) -> str:
    """Return the [pgbouncer] section of docker-compose.yml without paths, logins and the omitted settings."""
    command = _command()
    section = command.partition("[pgbouncer]\n")[2].partition("INI\n")[0]
    old = () if (version() or ()) >= PREPARES else ("max_prepared_statements",)
    left_out = ("listen_", "auth_", "unix_", *old, *without)
    lines = [line for line in section.splitlines() if not line.strip().startswith(left_out)]
    return "\n".join(lines)


def connect_query() -> str:
    """Return PgBouncer's first query on each connection, from docker-compose.yml."""
    command = _command()
    found = re.search(r"connect_query='(.*)'$", command, re.MULTILINE)
    assert found, command
    return found[1]


def _command() -> str:
    services = compose.resolved(("COMPOSE_PROFILES", "pgbouncer"))["services"]
    return compose.unescaped(services["pgbouncer"]["command"][-1])


@contextmanager
def before(url: str, *without: str) -> Iterator[str]:
    """The URL of a PgBouncer in transaction pooling before the Postgres of that URL; ends with the block."""
    found = psycopg.conninfo.conninfo_to_dict(url)
    account = users.find_unprivileged_account()
    folder = Path(tempfile.mkdtemp(prefix="signoff-pgbouncer-"))
    folder.chmod(0o755)
    port = servers.free_port()
    query = "" if "connect_query" in without else f" connect_query='{connect_query()}'"
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{found['dbname']} = host={found['host']} user={found['user']}"
        f" password='{found['password']}'{query}\n"
        f"[pgbouncer]\n{settings(*without)}\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n"
    )
    who: dict[str, Any] = {"user": account.uid, "group": account.gid, "extra_groups": []}
    words = [BINARY, folder / "pgbouncer.ini"]
    process = commands.start(words, folder / "log", env=os.environ, **who)
    try:
        through = f"postgres://{found['user']}@127.0.0.1:{port}/{found['dbname']}"
        _wait(through, process, folder / "log")
        yield through
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _wait(url: str, process: commands.Process, log: Path) -> None:
    """Connect again and again until it works: PgBouncer signals to no process that it is ready."""
    deadline = time.monotonic() + WITHIN
    while True:
        try:
            psycopg.connect(url, connect_timeout=3).close()
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        else:
            return
