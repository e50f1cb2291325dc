"""Every failed start prints one line that says what to do, without a traceback and without lines after it."""

import errno
import logging
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db import NotSupportedError, connection
from pytest_django import Settings

from config import wiring
from config.local import __main__ as launcher
from config.local import demo_people
from config.local.errors import DidNotStart, Refused
from config.local.processes import sockets, users
from config.local.servers import postgres
from config.processes import table
from runtime.ports import wiring as port_wiring
from runtime.upkeep import durability, startup
from tests.config.disks import disk
from tests.config.lines import line_of
from tests.support import commands

NOWHERE = "127.0.0.1:1"


# The data folder of `make up`


def up(folder: Path, *more: str, **variables: str) -> str:
    """Run `make up` on a folder until it refuses. Return its line."""
    done = commands.python(
        "-m",
        "config.local",
        "up",
        "--home",
        str(folder),
        *more,
        env={"PATH": os.environ["PATH"], "HOME": str(folder.parent), **variables},
    )
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("abeyance: ")
    return line.removeprefix("abeyance: ")


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = sockets.port_of(taken)
        line = up(tmp_path / "home", "--port", str(port))
    assert line == f"port {port} is taken: choose another with PORT=…"


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_damaged_credentials(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(text)
    with pytest.raises(
        Refused, match=r"credentials\.json is damaged .*: put back the copy"
    ) as said:
        demo_people.update_addresses(path, url="http://127.0.0.1", scim_url="")
    assert "\n" not in str(said.value)


def test_a_data_folder_that_can_only_be_read(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", 1_000_000, read_only=True) as place:
        folder = (place or Path("/proc")) / "home"  # no account can make a folder in /proc
        line = up(folder)
    assert re.fullmatch(rf"cannot use {folder} \(.+\): HOME_DIR=… chooses another folder", line)


@pytest.mark.parametrize("size", [16_384, 4_000_000, 30_000_000])
def test_a_disk_that_is_full(sandbox: Path, size: int) -> None:
    """The disk fills up at the first file, while Postgres is copied or created, and later."""
    with disk(sandbox / f"disk of {size}", size) as place:
        if place is None:  # without the right to mount: raise the kernel's error
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            assert launcher._explained(full, sandbox) == (
                f"the disk of {sandbox} is full: make room and start again"
            )
            return
        line = up(place / "home")
    assert line == f"the disk of {place}/home is full: make room and start again"


def test_secrets_that_are_not_those_of_the_cluster(
    postgres_url: str, sandbox: Path, server_folder: Path
) -> None:
    """This happens after an incomplete restore."""
    account = users.unprivileged()
    cluster = postgres.Cluster(
        programs=Path("/nowhere"),
        data=server_folder / "postgres",
        socket=server_folder,
        account=account,
        password="another",
    )
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(
            DidNotStart, match=r"another password than secrets\.json says: put back"
        ):
            postgres._wait(cluster, process, lambda seconds: None, postgres.ensure_database)
        process.kill()


# The processes of the table, from any launcher


def start_process(name: str, **variables: str) -> str:
    """Run a process of the table in its own environment until it ends. Return its line."""
    (process,) = [one for one in table(bind=variables.pop("bind", NOWHERE)) if one.name == name]
    known = {"PATH": os.environ["PATH"], "REDIS_URL": f"redis://{NOWHERE}/0"}
    done = commands.run(
        *process.command, env={**known, "ABEYANCE_UNSAFE_POSTGRES": "yes", **variables}
    )
    assert done.returncode == 1, done.stderr
    line = line_of(done.stderr)
    assert line.startswith("abeyance: "), done.stderr
    return line.removeprefix("abeyance: ")


NAMES = [process.name for process in table()]


@pytest.fixture
def keys(tmp_path: Path, settings: Settings) -> Path:
    """Return a folder with every key, for a test to damage."""
    folder = tmp_path / "keys"
    shutil.copytree(settings.KEYS_DIR, folder)
    return folder


@pytest.fixture
def migrated(transactional_db: None, postgres_url: str) -> str:
    """Return the DATABASE_URL of the test database, which has every table."""
    return postgres_url.rpartition("/")[0] + "/" + str(connection.settings_dict["NAME"])


def test_a_database_that_does_not_answer() -> None:
    """Each process waits ten seconds for Postgres, so they wait in parallel."""

    def line(name: str) -> str:
        nowhere = f"postgres://me@{NOWHERE}/abeyance"
        return start_process(name, DATABASE_URL=nowhere, bind="127.0.0.1:0")

    with ThreadPoolExecutor() as pool:
        lines = dict(zip(NAMES, pool.map(line, NAMES), strict=True))
    said = "Postgres at 127.0.0.1, user me does not answer: is it running, and is DATABASE_URL right? ("
    assert {name: line for name, line in lines.items() if not line.startswith(said)} == {}


def test_a_wrong_password(postgres_url: str) -> None:
    wrong = re.sub(r":[^:@]*@", ":wrong@", postgres_url)
    line = start_process("web", DATABASE_URL=wrong, bind="127.0.0.1:0")
    assert "refuses us: look at DATABASE_URL and DATABASE_PASSWORD_FILE" in line


def test_a_database_that_was_never_made(postgres_url: str) -> None:
    line = start_process("web", DATABASE_URL=f"{postgres_url}_of_nobody", bind="127.0.0.1:0")
    assert "does not know what DATABASE_URL names: create it" in line


def test_migrations_that_were_not_applied(postgres_url: str) -> None:
    """Each process checks this in the function that waits for the database."""
    other = postgres_url.rpartition("/")[0] + "/postgres"
    line = start_process("web", DATABASE_URL=other, bind="127.0.0.1:0")
    assert re.fullmatch(
        r"the database lacks \d+ of this version's migrations: run `manage\.py migrate`", line
    )


def test_a_postgres_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_old() -> None:
        raise NotSupportedError("PostgreSQL 14 or later is required (found 12.9).")

    monkeypatch.setattr(connection, "ensure_connection", too_old)
    monkeypatch.setattr(connection, "close", lambda: None)
    with pytest.raises(
        SystemExit, match=r"required \(found 12\.9\)\.: upgrade it, best to Postgres 18"
    ):
        startup.require_database()


class Late(logging.Handler):
    """Calls a function when the log reports a wait."""

    def __init__(self, come: Callable[[], object]) -> None:
        super().__init__()
        self._come = come
        self.waited: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.waited.append(record.getMessage())
        self._come()


@contextmanager
def late(come: Callable[[], object]) -> Iterator[list[str]]:
    handler = Late(come)
    startup.log.addHandler(handler)
    try:
        yield handler.waited
    finally:
        startup.log.removeHandler(handler)


def test_a_database_that_comes_late(transactional_db: None) -> None:
    there = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict.update(HOST="127.0.0.1", PORT="1")
    try:
        with late(lambda: connection.settings_dict.update(there)) as waited:
            startup.require_database()
    finally:
        connection.settings_dict.update(there)
    (line,) = waited
    assert line.startswith("Waiting for Postgres: connection failed: ")


@pytest.mark.parametrize(
    "step",
    [
        startup.require_database,
        startup.require_durable_stores,
        startup.require_keys_of_live_runs,
        wiring.connect_effects,
    ],
)
def test_a_database_that_goes_away_during_a_step_of_the_start(
    step: Callable[[], None],
    transactional_db: None,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process continues its start, because loading its code took the first seconds."""
    settings.ABEYANCE_UNSAFE_POSTGRES = False
    monkeypatch.setattr(durability, "POSTGRES", {"max_connections": ""})  # ours is unsafe
    monkeypatch.setattr(port_wiring, "plug", lambda **_: None)
    cut: list[str] = []

    def once(execute: Callable[..., object], sql: str, *rest: Any) -> object:
        if not cut:
            cut.append(sql)
            execute("SELECT pg_terminate_backend(pg_backend_pid())", None, False, rest[-1])
        return execute(sql, *rest)

    with connection.execute_wrapper(once):
        step()
    assert cut


def test_a_broker_that_comes_late(broker_url: str, settings: Settings) -> None:
    settings.REDIS_URL = f"redis://{NOWHERE}/0"
    with late(lambda: setattr(settings, "REDIS_URL", broker_url)) as waited:
        startup.require_broker()
    (line,) = waited
    assert line.startswith("Waiting for the broker: ")


def test_a_broker_that_does_not_answer(migrated: str) -> None:
    line = start_process("worker", DATABASE_URL=migrated)
    assert line.startswith("the broker does not answer (")
    assert line.endswith("): is it running, and is REDIS_URL right?")


def test_a_broker_that_wants_another_password(migrated: str, broker_url: str) -> None:
    with redis.Redis.from_url(broker_url) as client:
        client.config_set("requirepass", "right")
        try:
            line = start_process("worker", DATABASE_URL=migrated, REDIS_URL=broker_url)
        finally:
            client.config_set("requirepass", "")
    assert line.startswith("the broker refuses us (")
    assert line.endswith("): look at REDIS_URL and REDIS_PASSWORD_FILE")


@pytest.mark.parametrize("text", [None, f"id:{'ab' * 8}"])
@pytest.mark.parametrize(
    ("name", "file"), [("web", "decisions.private"), ("worker", "journal.keys")]
)
def test_a_key_file_that_is_missing_or_damaged(
    migrated: str, broker_url: str, keys: Path, name: str, file: str, text: str | None
) -> None:
    (keys / file).unlink()
    if text is not None:
        (keys / file).write_text(text)
    line = start_process(
        name, DATABASE_URL=migrated, REDIS_URL=broker_url, KEYS_DIR=str(keys), bind="127.0.0.1:0"
    )
    assert str(keys / file) in line
    assert (
        "`manage.py prepare` makes it" if text is None else "put back the copy of a backup"
    ) in line


def test_a_postgres_that_may_lose_confirmed_commits(
    migrated: str, broker_url: str, keys: Path
) -> None:
    stores = {"DATABASE_URL": migrated, "REDIS_URL": broker_url, "KEYS_DIR": str(keys)}
    line = start_process("worker", **stores, ABEYANCE_UNSAFE_POSTGRES="no")
    assert line.startswith("Postgres has fsync = off: a crash of the machine would lose decisions")


def test_agents_that_are_not_there(migrated: str, broker_url: str, keys: Path) -> None:
    stores = {"DATABASE_URL": migrated, "REDIS_URL": broker_url, "KEYS_DIR": str(keys)}
    line = start_process("worker", **stores, ABEYANCE_AGENTS="nobodys.agents")
    assert "nobodys" in line


@pytest.mark.parametrize("bind", ["taken", "somewhere", "127.0.0.1:no", "127.0.0.1:99999"])
def test_an_address_that_the_web_cannot_have(bind: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        if bind == "taken":
            bind = f"127.0.0.1:{sockets.port_of(taken)}"
        line = start_process("web", bind=bind)
    assert bind in line
    assert "--bind" in line


@pytest.mark.parametrize(
    "command", ["prepare", "migrate", "rotate_key journal", "healthcheck worker"]
)
def test_a_command_of_the_installation_says_it_in_one_line_too(command: str) -> None:
    done = commands.manage(
        *command.split(),
        env={"DATABASE_URL": f"postgres://me@{NOWHERE}/abeyance", "KEYS_DIR": "/proc/keys"},
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("abeyance: ")
