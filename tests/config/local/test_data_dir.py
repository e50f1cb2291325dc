"""A data folder belongs to one start at a time, keeps its secrets, and does not change existing files."""

import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from config.local import data_dir, services
from config.local.data_dir import DataDir
from config.local.errors import DidNotStart, Ended, Refused
from config.local.processes import supervisor, users
from config.local.servers import postgres
from config.local.services import Stack


def _open(folder: Path) -> DataDir:
    return data_dir.open_home(folder, users.starter())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_in_use_is_refused_with_the_id_of_who_holds_it(tmp_path: Path) -> None:
    first = _open(tmp_path / "home")
    with pytest.raises(Refused, match=f"in use by process {os.getpid()}"):
        _open(tmp_path / "home")
    os.close(first.lock)
    os.close(_open(tmp_path / "home").lock)


def test_secrets_stay_differ_from_others_and_only_the_owner_reads_them(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir(mode=0o755)
    told = []
    for name in ("one", "two", "one"):
        opened = _open(tmp_path / name)
        data_dir.make_folders(opened, users.starter())
        told.append((opened.id, opened.secret("scim"), opened.secret_key.read_text()))
        for secret in (opened.secret_key, *opened.folder.glob("*.json")):
            assert _mode(secret) == 0o600
        os.close(opened.lock)
    assert told[0] == told[2]
    assert not set(told[0]) & set(told[1])
    assert _mode(tmp_path / "one") == 0o700
    assert _mode(tmp_path / "two") == 0o755  # as it was


def test_a_folder_that_a_newer_version_adds_is_the_applications(tmp_path: Path) -> None:
    """Under root the application has another account."""
    opened, application = _open(tmp_path / "home"), users.unprivileged()
    for _ in range(2):
        data_dir.make_folders(opened, application)
        owners = {(opened.folder / name).stat().st_uid for name in data_dir.APPLICATION_FOLDERS}
        assert owners == {application.uid}
        (opened.folder / "invoices").rmdir()


@pytest.mark.parametrize(
    ("name", "text"), [("home.json", "{"), ("home.json", "[]"), ("secrets.json", "")]
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Refused) as refused:
        _open(tmp_path).secret("postgres")
    what = rf"{re.escape(str(tmp_path / name))} is damaged \(.+\): put back the copy of a backup"
    assert re.fullmatch(what, str(refused.value))


def test_missing_data_outside_the_folder_is_not_recreated(tmp_path: Path) -> None:
    opened = _open(tmp_path / "home")
    opened.set(servers=str(tmp_path / "gone"))
    os.close(opened.lock)
    with pytest.raises(Refused, match=r"/gone, where Postgres keeps the data of .*is not there"):
        _open(tmp_path / "home")


def test_unusable_postgres_data_is_refused_with_a_remedy(tmp_path: Path) -> None:
    data = tmp_path / "postgres"
    data.mkdir(mode=0o700)
    data.chmod(0o755)
    me = users.starter()
    cluster = postgres.Cluster(
        programs=tmp_path, data=data, socket=tmp_path, account=me, password=""
    )
    with pytest.raises(Refused, match=f"can be read by others, .*: chmod 700 {data}"):
        postgres.initialise(cluster)
    other = replace(cluster, account=replace(me, name="ada", uid=me.uid + 1))
    with pytest.raises(Refused, match=f"{data} belongs to {me.name}, but Postgres runs as ada: "):
        postgres.initialise(other)


@pytest.mark.parametrize(
    ("name", "said", "why"),
    [
        (
            "postgres",
            "LOG:  shut down\nFATAL:  starting\nPANIC:  no record\nLOG:  down\n",
            "no record",
        ),
        (
            "broker",
            "1:M # Can't open\n1:M # Fatal error, can't read\n",
            "1:M # Fatal error, can't read",
        ),
    ],
)
def test_a_server_that_ends_is_named_with_the_cause_in_its_log(
    tmp_path: Path, name: str, said: str, why: str
) -> None:
    with supervisor.open_log(tmp_path, name) as log:
        log.write(said.encode())
    of_this: Any = SimpleNamespace(home=SimpleNamespace(logs=tmp_path))
    with pytest.raises(DidNotStart) as caught, Stack._log(of_this, name):
        raise Ended("it ended: exit code 1")
    assert str(caught.value) == f"it ended: exit code 1: {why} (see {tmp_path}/{name}.log)"


def test_a_temporary_folder_too_deep_for_a_socket_is_named(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with pytest.raises(Refused, match=f"the temporary folder {tmp_path} is too deep: "):
        services._require_short(deep)
    assert not deep.exists()
