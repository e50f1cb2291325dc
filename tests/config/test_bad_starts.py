"""Every bad start is one line that says what to do: no traceback, nothing before it that matters, nothing after it."""

import errno
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import redis
from django.db import NotSupportedError, connection
from pytest_django import Settings

from config.env import ROOT
from config.local import __main__ as launcher
from config.local import accounts, demo, listeners, postgres
from config.local.errors import DidNotStart, Refused
from config.processes import table
from runtime import start
from tests.config.disks import disk

ENVIRONMENT = ROOT / "requirements" / "environment.py"
NOWHERE = "127.0.0.1:1"


def line_of(said: str) -> str:
    """The one line, which is the last; nothing that reads like a traceback comes with it."""
    assert "Traceback" not in said, said
    assert "During handling" not in said, said
    return said.strip().splitlines()[-1]


# The environment of the application


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one lock of one package that no index here has."""
    folder = tmp_path / "requirements"
    folder.mkdir()
    shutil.copy(ENVIRONMENT, folder)
    (folder / "tiny.txt").write_text(f"nobodys-package==1.0 --hash=sha256:{'0' * 64}\n")
    return tmp_path


def make_environment(
    checkout: Path, folder: Path, *before: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """`environment.py` as the Makefile calls it; `before` is run in the same interpreter first."""
    script = str(checkout / "requirements" / "environment.py")
    code = ";".join(
        [
            *("import runpy, sys", *before),
            f"sys.argv[:] = {[script, str(folder), 'any', 'tiny']!r}",
            f"runpy.run_path({script!r}, run_name='__main__')",
        ]
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PIP_RETRIES": "1", "PIP_TIMEOUT": "2", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_python_that_is_too_old(checkout: Path) -> None:
    done = make_environment(checkout, checkout / "venv", "sys.version_info = (3, 9, 2)")
    assert line_of(done.stderr) == (
        "Abeyance needs Python 3.11 or newer, but this is 3.9: make PYTHON=… chooses another"
    )


@pytest.mark.parametrize(
    "module",
    [
        "raise ModuleNotFoundError(\"No module named 'venv'\")",
        "print('ensurepip is not available.'); raise SystemExit(1)",
    ],
)
def test_a_python_without_venv(checkout: Path, module: str) -> None:
    shadow = checkout / "shadow"
    shadow.mkdir()
    (shadow / "venv.py").write_text(module)
    done = make_environment(checkout, checkout / "venv", PYTHONPATH=str(shadow))
    assert re.fullmatch(
        r"\S+ lacks the module venv: install it \(Debian, Ubuntu: apt install python3\.\d+-venv\),"
        r" or choose another with make PYTHON=…",
        line_of(done.stderr),
    )
    assert done.returncode == 1


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has pip and nothing else."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder


def test_no_network_while_installing(checkout: Path, empty_environment: Path) -> None:
    done = make_environment(checkout, empty_environment, PIP_INDEX_URL=f"http://{NOWHERE}/simple")
    assert line_of(done.stderr) == (
        "no package can be downloaded: is this machine online?"
        " (HTTPS_PROXY names a proxy, PIP_INDEX_URL a mirror)"
    )


def test_a_package_that_would_have_to_be_compiled(checkout: Path, empty_environment: Path) -> None:
    packages = checkout / "packages"
    packages.mkdir()
    (packages / "nobodys_package-1.0.tar.gz").write_bytes(b"source, for which a compiler is needed")
    done = make_environment(
        checkout, empty_environment, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(packages)
    )
    assert re.fullmatch(
        r"there is no wheel of nobodys-package==1\.0 for Python 3\.\d+ on \S+ \S+, and nothing is"
        r" compiled here: choose another Python with make PYTHON=…",
        line_of(done.stderr),
    )


def test_a_package_that_is_not_the_one_of_the_lock(checkout: Path, empty_environment: Path) -> None:
    packages = checkout / "packages"
    packages.mkdir()
    wheel = packages / "nobodys_package-1.0-py3-none-any.whl"
    wheel.write_bytes(b"not what it says")
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() != "0" * 64
    done = make_environment(
        checkout, empty_environment, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(packages)
    )
    assert line_of(done.stderr) == (
        "a package that was downloaded is not the one that tiny.txt names:"
        " use another mirror or network"
    )


@pytest.mark.parametrize(
    ("size", "read_only", "line"),
    [
        (1_000_000, False, "the disk is full: make room for {folder} and run it again"),
        (
            1_000_000,
            True,
            "{folder} (is on a read-only disk|cannot be written by this account): .*",
        ),
    ],
)
def test_a_checkout_that_cannot_hold_an_environment(
    checkout: Path, tmp_path: Path, size: int, read_only: bool, line: str
) -> None:
    with disk(tmp_path / "disk", size, read_only=read_only) as place:
        if place is None:  # no right to mount: what venv says there is what is looked at
            said = {False: os.strerror(errno.ENOSPC), True: os.strerror(errno.EROFS)}[read_only]
            shadow = checkout / "shadow"
            shadow.mkdir()
            (shadow / "venv.py").write_text(f"raise SystemExit('Error: {said}')")
            folder, variables = tmp_path / "venv", {"PYTHONPATH": str(shadow)}
        else:
            folder, variables = place / "venv", {}
        done = make_environment(checkout, folder, **variables)
    assert re.fullmatch(line.format(folder=re.escape(str(folder))), line_of(done.stderr))


# The data folder of `make up`


def up(folder: Path, *more: str, **variables: str) -> str:
    """`make up` on a folder, to where it refuses; the line."""
    done = subprocess.run(
        [sys.executable, "-m", "config.local", "up", "--home", str(folder), *more],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(folder.parent), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("abeyance: ")
    return line.removeprefix("abeyance: ")


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = listeners.port_of(taken)
        line = up(tmp_path / "home", "--port", str(port))
    assert line == f"port {port} is taken: choose another with PORT=…"


@pytest.mark.parametrize(
    ("name", "text"), [("home.json", "{"), ("home.json", "[]"), ("secrets.json", "")]
)
def test_a_damaged_file_of_the_data_folder(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path / name))} is damaged \(.+\): put back the copy of a backup",
        up(tmp_path),
    )


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_damaged_credentials(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(text)
    with pytest.raises(
        Refused, match=r"credentials\.json is damaged .*: put back the copy"
    ) as said:
        demo.keep_current(path, url="http://127.0.0.1", scim_url="")
    assert "\n" not in str(said.value)


def test_a_data_folder_that_can_only_be_read(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", 1_000_000, read_only=True) as place:
        folder = (place or Path("/proc")) / "home"  # /proc takes no folders from anybody
        line = up(folder)
    assert re.fullmatch(rf"cannot use {folder} \(.+\): HOME_DIR=… chooses another folder", line)


@pytest.mark.parametrize("size", [16_384, 4_000_000, 30_000_000])
def test_a_disk_that_is_full(sandbox: Path, size: int) -> None:
    """At the first file, while Postgres is copied or made, and a little later."""
    with disk(sandbox / f"disk of {size}", size) as place:
        if place is None:  # no right to mount: what the kernel says there is what is looked at
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
    """As after a restore of half a backup."""
    account = accounts.unprivileged()
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
            postgres._wait(cluster, process, lambda seconds: None)
        process.kill()


# The processes of the table, wherever they are started


def start_process(name: str, **variables: str) -> str:
    """A process of the table in an environment of its own, to where it ends; the line."""
    (process,) = [one for one in table(bind=variables.pop("bind", NOWHERE)) if one.name == name]
    done = subprocess.run(
        process.command,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "REDIS_URL": f"redis://{NOWHERE}/0", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    line = line_of(done.stderr)
    assert line.startswith("abeyance: "), done.stderr
    return line.removeprefix("abeyance: ")


NAMES = [process.name for process in table()]
with_each = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def url(postgres_url: str) -> str:
    """A DATABASE_URL whose host, user and password can be exchanged."""
    return postgres_url


@pytest.fixture
def keys(tmp_path: Path, settings: Settings) -> Path:
    """A folder with every key, for a test to spoil."""
    folder = tmp_path / "keys"
    shutil.copytree(settings.KEYS_DIR, folder)
    return folder


@pytest.fixture
def migrated(transactional_db: None, url: str) -> str:
    """The DATABASE_URL of the test database, which has every table."""
    return url.rpartition("/")[0] + "/" + str(connection.settings_dict["NAME"])


@with_each
def test_a_database_that_does_not_answer(name: str) -> None:
    line = start_process(name, DATABASE_URL=f"postgres://me@{NOWHERE}/abeyance", bind="127.0.0.1:0")
    assert line.startswith(
        "Postgres at 127.0.0.1, user me does not answer: is it running, and is DATABASE_URL right? ("
    )


@with_each
def test_a_wrong_password(name: str, url: str) -> None:
    wrong = re.sub(r":[^:@]*@", ":wrong@", url)
    line = start_process(name, DATABASE_URL=wrong, bind="127.0.0.1:0")
    assert "refuses us: look at DATABASE_URL and DATABASE_PASSWORD_FILE" in line


@with_each
def test_a_database_that_was_never_made(name: str, url: str) -> None:
    line = start_process(name, DATABASE_URL=f"{url}_of_nobody", bind="127.0.0.1:0")
    assert "does not know what DATABASE_URL names: create it" in line


@with_each
def test_migrations_that_were_not_applied(name: str, url: str) -> None:
    line = start_process(
        name, DATABASE_URL=url.rpartition("/")[0] + "/postgres", bind="127.0.0.1:0"
    )
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
        start.require_database()


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
        name,
        DATABASE_URL=migrated,
        REDIS_URL=broker_url,
        KEYS_DIR=str(keys),
        bind="127.0.0.1:0",
    )
    assert str(keys / file) in line
    assert (
        "`manage.py prepare` makes it" if text is None else "put back the copy of a backup"
    ) in line


def test_agents_that_are_not_there(migrated: str, broker_url: str, keys: Path) -> None:
    line = start_process(
        "worker",
        DATABASE_URL=migrated,
        REDIS_URL=broker_url,
        KEYS_DIR=str(keys),
        ABEYANCE_AGENTS="nobodys.agents",
    )
    assert "nobodys" in line


@pytest.mark.parametrize("bind", ["taken", "somewhere", "127.0.0.1:no", "127.0.0.1:99999"])
def test_an_address_that_the_web_cannot_have(bind: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        if bind == "taken":
            bind = f"127.0.0.1:{listeners.port_of(taken)}"
        line = start_process("web", bind=bind)
    assert bind in line
    assert "--bind" in line


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: {path}: No such file or directory"),
        (b"short", "must hold at least 50 characters"),
        (b"\xff" * 60, "cannot be read: {path} is not text"),
    ],
)
def test_a_secret_key_that_cannot_be_used(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    line = start_process("web", SECRET_KEY_FILE=str(path))
    assert line == f"SECRET_KEY_FILE {problem.format(path=path)}"


@pytest.mark.parametrize("command", ["prepare", "migrate", "rotate_key journal", "alive worker"])
def test_a_command_of_the_installation_says_it_in_one_line_too(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", *command.split()],
        cwd=ROOT,
        env={"DATABASE_URL": f"postgres://me@{NOWHERE}/abeyance", "KEYS_DIR": "/proc/keys"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("abeyance: ")
