"""Embedded servers of a test's own. `folder` gets their programs and logs, `place` their data and sockets."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.local.processes import sockets, users
from config.local.servers import binaries, broker, postgres
from config.local.servers.directory import TOKEN_VARIABLE
from tests.support import commands


def free_port() -> int:
    with sockets.listen_on_any_port(None) as listener:
        return sockets.read_port(listener)


def own(place: Path) -> Path:
    """Make a folder that is the servers' own."""
    place.mkdir(mode=0o700)
    users.chown(users.find_unprivileged_account(), [place])
    return place


def cluster(
    folder: Path, place: Path, password: str = "for tests only", superuser: str = postgres.SUPERUSER
) -> postgres.Cluster:
    account = users.find_unprivileged_account()
    return postgres.Cluster(
        programs=binaries.find_postgres_programs(account, folder / "programs"),
        data=place / "postgres",
        socket=place,
        account=account,
        password=password,
        superuser=superuser,
    )


@contextmanager
def postgres_of(
    cluster: postgres.Cluster, folder: Path, settings: dict[str, str] = postgres.DURABLE
) -> Iterator[commands.Process]:
    """A new Postgres for as long as the block lasts."""
    postgres.initialise(cluster)
    with (folder / "postgres.log").open("ab") as log:
        process = postgres.start(cluster, log, settings)
    try:
        yield process
    finally:
        postgres.stop(process)


@contextmanager
def broker_of(folder: Path, place: Path) -> Iterator[tuple[str, commands.Process]]:
    """A broker for as long as the block lasts: its URL and its process."""
    account = users.find_unprivileged_account()
    program = binaries.find_broker_program(account, folder / "programs")
    queue = broker.Broker(program=program, data=place / "broker", socket=place, account=account)
    with (folder / "broker.log").open("ab") as log:
        process = broker.start(queue, log)
    try:
        yield queue.url(), process
    finally:
        broker.stop(process)


@contextmanager
def outside(folder: Path, token: str) -> Iterator[dict[str, str]]:
    """A directory with this token, and a mail server that writes to `mail`: the settings that say where they are."""
    with sockets.listen_on_any_port(None) as directory, sockets.listen_on_any_port(None) as mailbox:
        (folder / "mail").mkdir()
        started = [
            commands.start(
                [sys.executable, "-m", f"config.local.servers.{module}", handle, folder / data],
                folder / f"{module}.log",
                env={**os.environ, TOKEN_VARIABLE: token},
                pass_fds=[handle],
            )
            for module, handle, data in (
                ("directory.server", directory.fileno(), "directory.sqlite3"),
                ("mailbox", mailbox.fileno(), "mail"),
            )
        ]
        try:
            yield {
                "SCIM_URL": f"http://127.0.0.1:{sockets.read_port(directory)}/v2",
                "EMAIL_URL": f"smtp://127.0.0.1:{sockets.read_port(mailbox)}",
            }
        finally:
            for process in started:
                commands.stop(process)
