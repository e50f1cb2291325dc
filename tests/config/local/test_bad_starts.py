"""Every failed start prints one line that says what to do, without a traceback and without lines after it."""

import errno
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
from config.local.errors import DidNotStart, Refused
from config.local.processes import sockets, users
from config.local.servers import postgres
from config.local.up import require_agents
from config.processes import list_processes
from runtime.ports import wiring as port_wiring
from runtime.upkeep import startup
from tests.config.lines import line_of
from tests.support import commands, forks, servers

NOWHERE = "127.0.0.1:1"


# The data folder of `make up`


def only_line(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the one line of a refusal without the name before it."""
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("signoff: ")
    return line.removeprefix("signoff: ")


def up(folder: Path, *more: str, **variables: str) -> str:
    """Run `make up` on a folder until it refuses. Return its line."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), **variables}
    return only_line(forks.run("-m", "config.local", "up", "--home", folder, *more, env=env))


@contextmanager
def disk(place: Path, size: int, *, read_only: bool = False) -> Iterator[Path | None]:
    """Mount a disk of so many bytes at `place`. Yield None if this account cannot mount."""
    place.mkdir()
    options = f"size={size},mode=755{',ro' if read_only else ''}"
    if commands.run("mount", "-t", "tmpfs", "-o", options, "tmpfs", place).returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_data_folder_of_another_version_is_refused_unchanged(tmp_path: Path) -> None:
    (tmp_path / "home.json").write_text('{"id": "0123456789abcdef", "servers": null}\n')
    (tmp_path / "servers" / "postgres").mkdir(parents=True)
    before = {path: path.lstat().st_ctime_ns for path in tmp_path.rglob("*")}
    assert up(tmp_path) == (
        f"{tmp_path} was made by another version, and cannot be upgraded. Nothing was changed:"
        " keep using that version for it, or start with an empty folder (HOME_DIR=…)"
    )
    assert {path: path.lstat().st_ctime_ns for path in tmp_path.rglob("*")} == before


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
            assert launcher._explain_problem(full, sandbox) == (
                f"the disk of {sandbox} is full: make room and start again"
            )
            return
        line = up(place / "home")
    assert line == f"the disk of {place}/home is full: make room and start again"


def test_secrets_that_are_not_those_of_the_cluster(
    postgres_url: str, sandbox: Path, server_folder: Path
) -> None:
    cluster = servers.cluster(sandbox, server_folder, "another")
    said = r"another password than secrets\.json says: put back"
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(DidNotStart, match=said):
            postgres._wait(cluster, process, lambda seconds: None, postgres.ensure_database)
        process.kill()


# The processes of the table, from any launcher


def refuse(name: str, **variables: str) -> str:
    """Run a process of the table in its own environment until it ends. Return its line."""
    return refusal(forks.run, name, variables)


def refusal(run: Callable[..., commands.Done], name: str, variables: dict[str, str]) -> str:
    """Have `run` run a process of the table until it ends. Return its line."""
    (process,) = [
        one for one in list_processes(bind=variables.pop("bind", NOWHERE)) if one.name == name
    ]
    known = {"PATH": os.environ["PATH"], "REDIS_URL": f"redis://{NOWHERE}/0"}
    words = process.command[1:]  # after Python
    done = run(*words, env={**known, "SIGNOFF_UNSAFE_POSTGRES": "yes", **variables})
    assert done.returncode == 1, done.stderr
    line = line_of(done.stderr)
    assert line.startswith("signoff: "), done.stderr
    return line.removeprefix("signoff: ")


NAMES = [process.name for process in list_processes()]


@pytest.fixture
def migrated(transactional_db: None, postgres_url: str) -> str:
    """Return the DATABASE_URL of the test database, which has every table."""
    return postgres_url.rpartition("/")[0] + "/" + str(connection.settings_dict["NAME"])


def test_a_database_that_does_not_answer() -> None:
    """Each process waits ten seconds for Postgres, so they wait in parallel."""

    def line(name: str) -> str:
        nowhere = f"postgres://me@{NOWHERE}/signoff"
        variables = {"DATABASE_URL": nowhere, "bind": "127.0.0.1:0"}
        return refusal(commands.python, name, variables)

    with ThreadPoolExecutor() as pool:
        lines = dict(zip(NAMES, pool.map(line, NAMES), strict=True))
    said = "Postgres at 127.0.0.1, user me does not answer: is it running, and is DATABASE_URL right? ("
    assert {name: line for name, line in lines.items() if not line.startswith(said)} == {}


@pytest.mark.parametrize(
    ("login", "name", "said"),
    [
        (":wrong@", "signoff", ".* refuses us: look at DATABASE_URL and DATABASE_PASSWORD_FILE .*"),
        (r"\g<0>", "of_nobody", ".* does not know what DATABASE_URL names: create it .*"),
        (
            r"\g<0>",
            "postgres",
            r"the database lacks \d+ of .* migrations: run `manage\.py migrate`",
        ),
    ],
)
def test_an_unusable_database(postgres_url: str, login: str, name: str, said: str) -> None:
    server = re.sub(r":[^:@]*@", login, postgres_url).rpartition("/")[0]
    line = refuse("web", DATABASE_URL=f"{server}/{name}", bind="127.0.0.1:0")
    assert re.fullmatch(said, line)


def test_a_broker_that_cannot_be_used(migrated: str, broker_url: str) -> None:
    line = refuse("worker", DATABASE_URL=migrated)
    said = r"the broker does not answer \(.*\): is it running, and is REDIS_URL right\?"
    assert re.fullmatch(said, line)
    with redis.Redis.from_url(broker_url) as client:
        client.config_set("requirepass", "right")
        try:
            line = refuse("worker", DATABASE_URL=migrated, REDIS_URL=broker_url)
        finally:
            client.config_set("requirepass", "")
    said = r"the broker refuses us \(.*\): look at REDIS_URL and REDIS_PASSWORD_FILE"
    assert re.fullmatch(said, line)


def test_a_server_that_comes_late(
    transactional_db: None, settings: Settings, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, waited = dict(connection.settings_dict), list[str]()

    def waits(text: str, *values: object) -> None:
        waited.append(text % values)
        connection.settings_dict.update(there)
        settings.REDIS_URL = broker_url

    monkeypatch.setattr(startup.log, "warning", waits)
    connection.close()
    connection.settings_dict.update(HOST="127.0.0.1", PORT="1")
    settings.REDIS_URL = f"redis://{NOWHERE}/0"
    try:
        startup.require_database()
        settings.REDIS_URL = f"redis://{NOWHERE}/0"
        startup.require_broker()
    finally:
        connection.settings_dict.update(there)
    said = [line.partition(": ")[0] for line in waited if line.startswith("Waiting")]
    assert said == ["Waiting for Postgres", "Waiting for the broker"]


def test_a_postgres_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_old() -> None:
        raise NotSupportedError("PostgreSQL 14 or later is required (found 12.9).")

    monkeypatch.setattr(connection, "ensure_connection", too_old)
    monkeypatch.setattr(connection, "close", lambda: None)
    said = r"required \(found 12\.9\)\.: upgrade it, best to Postgres 18"
    with pytest.raises(SystemExit, match=said):
        startup.require_database()


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
    settings.SIGNOFF_UNSAFE_POSTGRES = False
    monkeypatch.setattr(startup, "POSTGRES", {"max_connections": ""})  # ours is unsafe
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


def test_a_key_file_that_is_missing_or_damaged_and_a_postgres_that_may_lose_commits(
    migrated: str, broker_url: str, tmp_path: Path, settings: Settings
) -> None:
    keys = tmp_path / "keys"
    shutil.copytree(settings.KEYS_DIR, keys)
    stores = {"DATABASE_URL": migrated, "REDIS_URL": broker_url, "KEYS_DIR": str(keys)}
    for name, file in (("web", "decisions.private"), ("worker", "journal.keys")):
        whole = (keys / file).read_text()
        (keys / file).unlink()
        line = refuse(name, **stores, bind="127.0.0.1:0")
        assert re.search(f"{keys / file}.*`manage.py prepare` makes it", line)
        (keys / file).write_text(f"id:{'ab' * 8}")
        line = refuse(name, **stores, bind="127.0.0.1:0")
        assert re.search(f"{keys / file}.*put back the copy of a backup", line)
        (keys / file).write_text(whole)
    line = refuse("worker", **stores, SIGNOFF_UNSAFE_POSTGRES="no")
    assert line.startswith("Postgres has fsync = off: a crash of the machine would lose decisions")


@pytest.mark.filterwarnings("ignore:No directory at")  # static files, as the module is imported
def test_an_address_that_the_web_cannot_have() -> None:
    from config import web

    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        in_use = f"127.0.0.1:{sockets.read_port(taken)}"
        for bind in (in_use, "somewhere", "127.0.0.1:no", "127.0.0.1:99999"):
            with pytest.raises(SystemExit, match=r"^signoff: .*--bind") as refused:
                web.main(["--bind", bind])
            assert bind in str(refused.value)


@pytest.mark.parametrize("command", ["prepare", "rotate_key journal"])  # no database, no folder
def test_a_command_of_the_installation_says_it_in_one_line_too(command: str) -> None:
    env = {"DATABASE_URL": f"postgres://me@{NOWHERE}/signoff", "KEYS_DIR": "/proc/keys"}
    assert only_line(commands.manage(*command.split(), env=env))


# Agents in a folder


def test_a_folder_of_agents_that_workers_cannot_read(sandbox: Path) -> None:
    workers = users.find_unprivileged_account()
    require_agents(str(sandbox), workers)
    require_agents("", workers)
    folder = sandbox / "agents"
    folder.mkdir(mode=0o700 if workers.switch else 0o000)
    said = f"AGENTS_DIR: workers run as {workers.name}, who cannot read {folder}; "
    with pytest.raises(Refused, match=f"^{said}.*$"):
        require_agents(str(folder), workers)


def test_a_broken_module_ends_the_start_before_any_server(sandbox: Path) -> None:
    folder, home = sandbox / "broken agents", sandbox / "home of broken agents"
    folder.mkdir()
    (folder / "broken_shop.py").write_text("x = 1\ny = x.price\n")
    line = up(home, "--port", "0", AGENTS_DIR=str(folder), SIGNOFF_AGENTS="broken_shop")
    place = f"{folder}/broken_shop.py:2"
    cause = "AttributeError: 'int' object has no attribute 'price'"
    assert line == f"cannot load agents from broken_shop: {place}: {cause}"
    assert not (home / "logs" / "postgres.log").exists()
