"""Runs the embedded Postgres: under an account other than root, on a socket, with a password.

Its roles are a superuser for the supervisor only, an owner, and web and workers. The owner owns the tables and runs the
migrations; `config.grants` gives web and workers their rights. None of the three is a superuser, so none can read the
server's files or disable the audit's triggers.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import quote

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from config.local.data_dir import DataDir
from config.local.errors import DidNotStart, Ended, Refused
from config.local.processes import spawn
from config.local.processes.users import Account, chown, name_owner

SUPERUSER = "postgres"
DATABASE = "signoff"

# Postgres' durable defaults, set explicitly because the journal's guarantees depend on them
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}  # tests only
START_SECONDS = 60.0
OWNER = "signoff_owner"
WEB = "signoff"
WORKER = "signoff_worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One cluster: its programs, its data, its account, the folder of its socket, and its superuser's password."""

    programs: Path
    data: Path
    socket: Path
    account: Account
    password: str = field(repr=False)
    mark: str = ""
    superuser: str = SUPERUSER

    def url(self, database: str = DATABASE) -> str:
        """Return the superuser's DATABASE_URL."""
        return build_postgres_url(self.socket, self.superuser, self.password, database)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The password of each role that the application logs in as."""

    passwords: Mapping[str, str] = field(repr=False)

    def arrange(self, cluster: Cluster) -> None:
        """Create the database and the roles. Safe to repeat.

        Raise psycopg.OperationalError while the server does not answer.
        """
        ensure_database(cluster)
        with psycopg.connect(cluster.url(), connect_timeout=3) as connection:
            for name, password in self.passwords.items():
                ensure_role(connection, name, password)
            owner = sql.Identifier(OWNER)
            for statement in (
                sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(DATABASE), owner),
                sql.SQL("REVOKE CREATE ON SCHEMA public FROM PUBLIC"),
                sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(owner),
                # `healthcheck sweeper` reads pg_stat_activity.
                sql.SQL("GRANT pg_read_all_stats TO {}").format(owner),
            ):
                connection.execute(statement)


def build_postgres_url(socket: Path, role: str, password: str, database: str = DATABASE) -> str:
    """Return the DATABASE_URL of a role, with the socket's folder as the host."""
    return f"postgres://{role}:{quote(password)}@{quote(str(socket), safe='')}/{database}"


def initialise(cluster: Cluster) -> bool:
    """Create the cluster if none exists. Return whether it was created. Raise Refused for another major version."""
    marker = cluster.data / "PG_VERSION"
    if cluster.data.exists():
        status = cluster.data.stat()
        if status.st_uid != cluster.account.uid:
            owner, name = name_owner(cluster.data), cluster.account.name
            raise Refused(
                f"{cluster.data} belongs to {owner}, but Postgres runs as {name}:"
                f" start as the account that made it, or chown -R {name} {cluster.data}"
            )
        if status.st_mode & 0o027:
            raise Refused(
                f"{cluster.data} can be read by others, which Postgres refuses: chmod 700 {cluster.data}"
            )
    major = _read_major_version(cluster)
    if marker.exists():
        there = marker.read_text(encoding="ascii").strip()
        if there != str(major):
            raise Refused(
                f"{cluster.data} is of Postgres {there}, but only {major} is installed:"
                " see docs/how-to/upgrade.md"
            )
        return False
    fresh = cluster.data.with_name(cluster.data.name + ".new")
    if fresh.exists():  # left by a first start that was killed
        shutil.rmtree(fresh)
    fresh.mkdir(mode=0o700)
    chown(cluster.account, [fresh])
    _run_initdb(cluster, fresh, major)
    fresh.rename(cluster.data)
    return True


def unlock(cluster: Cluster) -> None:
    """Remove the lock file of a dead server, whose process id another process may have by now.

    The caller must have checked that no process works in the data: without the file, Postgres cannot detect one.
    """
    (cluster.data / "postmaster.pid").unlink(missing_ok=True)


def start(
    cluster: Cluster,
    log: IO[bytes] | int,
    settings: dict[str, str] = DURABLE,
    pause: Callable[[float], None] = time.sleep,
    arrange: Callable[[Cluster], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the server and wait until it answers. `pause` waits between two attempts.

    `arrange` creates the database's contents and raises psycopg.OperationalError until the server answers. Without it
    only the database is created. Raise DidNotStart also while children of a killed server still use the data.
    """
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(cluster.socket),
        "unix_socket_permissions": "0700",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "max_connections": "200",
        "shared_buffers": "64MB",
        **settings,
    }
    process = spawn.start(
        [
            cluster.programs / "postgres",
            *("-D", cluster.data),
            *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
        ],
        account=cluster.account,
        environment=spawn.build_plain_environment() | {spawn.MARK: cluster.mark},
        folder=cluster.data,
        log=log,
        when_we_die=signal.SIGINT,  # fast shutdown
    )
    try:
        _wait(cluster, process, pause, arrange or ensure_database)
    except BaseException:
        stop(process)
        raise
    return process


def ensure_database(cluster: Cluster) -> None:
    """Create the database if it does not exist. Raise psycopg.OperationalError."""
    with psycopg.connect(cluster.url("postgres"), autocommit=True, connect_timeout=3) as connection:
        row = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
        ).fetchone()
        if row is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def stop(process: subprocess.Popen[bytes], stop_timeout: float = 4.0) -> None:
    """Stop the server with a fast shutdown. If it takes too long, end it at once; it recovers at the next start."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        with suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            process.wait(stop_timeout)
        except subprocess.TimeoutExpired:
            continue
        return
    spawn.signal_group(process, signal.SIGKILL)
    process.wait()


def read_roles(home: DataDir) -> Roles:
    """Return the roles of a data folder. The first call creates their passwords."""
    return Roles(
        passwords={
            OWNER: home.secret("postgres_owner"),
            WEB: home.secret("postgres"),
            WORKER: home.secret("postgres_worker"),
        }
    )


def ensure_role(connection: Connection[TupleRow], name: str, password: str) -> None:
    """Create a role that may log in and nothing else, unless it is there."""
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone() is None:
        # Hashed as Postgres stores it, so that no log of statements ever contains it
        sealed = connection.pgconn.encrypt_password(
            password.encode(), name.encode(), b"scram-sha-256"
        )
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD {}").format(
                sql.Identifier(name), sql.Literal(sealed.decode())
            )
        )


def _wait(
    cluster: Cluster,
    process: subprocess.Popen[bytes],
    pause: Callable[[float], None],
    arrange: Callable[[Cluster], None],
) -> None:
    """Wait until the database answers, also after crash recovery, and is arranged."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            arrange(cluster)
        except psycopg.OperationalError as error:
            reason = str(error).strip().splitlines()[-1]
            if "password authentication failed" in reason:
                raise DidNotStart(
                    f"Postgres in {cluster.data} has another password than secrets.json says:"
                    " put back the copy of a backup"
                ) from error
            if process.poll() is not None:
                raise Ended(f"Postgres ended: {spawn.describe_end(process)}") from error
            if time.monotonic() > deadline:
                raise DidNotStart(f"Postgres did not start: {reason}") from error
        else:
            return
        pause(0.03)


def _run_initdb(cluster: Cluster, folder: Path, major: int) -> None:
    # This locale's sort order does not change with an upgrade of the C library, which would break indexes.
    locale = ["--locale=C.UTF-8"]
    if major >= 17:
        locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    handle, name = tempfile.mkstemp(dir=cluster.data.parent)  # only its account can read it
    password_file = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(cluster.password + "\n")
        chown(cluster.account, [password_file])
        process = subprocess.run(
            [
                cluster.programs / "initdb",
                *("-D", folder),
                *("-U", cluster.superuser),
                *("--auth=scram-sha-256", f"--pwfile={password_file}"),
                *("--encoding=UTF8", *locale),
                "--data-checksums",
                "--no-instructions",
            ],
            capture_output=True,
            text=True,
            env=spawn.build_plain_environment(),
            cwd=folder,
            check=False,
            **cluster.account.build_popen_arguments(),
        )
    finally:
        password_file.unlink()
    if process.returncode:
        lines = (process.stderr or process.stdout).strip().splitlines() or ["no reason given"]
        shutil.rmtree(folder)
        reason = next((line for line in lines if "FATAL" in line or "error:" in line), lines[-1])
        raise DidNotStart(f"initdb failed: {reason}")


def _read_major_version(cluster: Cluster) -> int:
    """Parse the major version from output such as `postgres (PostgreSQL) 18.6`."""
    output = subprocess.run(
        [cluster.programs / "postgres", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=spawn.build_plain_environment(),
        cwd="/",
        **cluster.account.build_popen_arguments(),
    ).stdout
    match = re.search(r"\) (\d+)", output)
    if match is None:
        raise DidNotStart(f"cannot tell the version of Postgres from {output.strip()!r}")
    return int(match[1])
