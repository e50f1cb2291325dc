"""A data folder belongs to one start at a time, keeps its secrets, and does not change existing files."""

import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from approvals.people import tokens
from approvals.rights.principals import ALL_SCOPES
from config.local import data_dir, demo, demo_people, services
from config.local.__main__ import main
from config.local.data_dir import DataDir
from config.local.errors import DidNotStart, Ended, Refused
from config.local.processes import supervisor, users
from config.local.servers import postgres
from config.local.services import Stack
from runtime.ports.access import Actor
from tests.support.seeds import Cast


def _open(folder: Path) -> DataDir:
    return data_dir.open_home(folder, users.read_starter_account())


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
        data_dir.make_folders(opened, users.read_starter_account())
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
    opened, application = _open(tmp_path / "home"), users.find_unprivileged_account()
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
    me = users.read_starter_account()
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


# Commands on it


def test_without_running_services_it_names_the_start_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "idle").mkdir()
    (tmp_path / "idle" / "lock").touch()
    (tmp_path / "file").touch()
    for name, said in (
        ("nowhere", "yet: start it with make up"),
        ("idle", "idle: start it with make up, and leave that running"),
        ("file", "file is not a folder"),
    ):
        assert main(["manage", "--home", str(tmp_path / name), "--", "people", "list"]) == 1
        told = capsys.readouterr().err
        assert said in told
        assert told.count("\n") == 1
    assert main(["manage", "--home", str(tmp_path)]) == 1
    assert 'CMD="people list"' in capsys.readouterr().err


def test_without_a_demo_no_people_are_made_and_the_choice_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = data_dir.open_home(tmp_path / "home", users.find_unprivileged_account())
    monkeypatch.setattr(demo, "_run", Mock(side_effect=AssertionError("people are made")))
    stack: Any = Mock(home=home)
    for wanted in (False, None):
        assert demo.ensure_demo(stack, "127.0.0.1", wanted, print) is None
    assert home.get("demo") is False
    assert demo.describe_next_step(home) == (
        f'make manage HOME_DIR={home.folder} CMD="people add NAME --group admins"'
    )


def test_a_folder_of_a_demo_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "credentials.json").write_text("{}")
    assert main(["up", "--home", str(tmp_path), "--demo", "0"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"signoff: {tmp_path}/credentials.json belongs to a demo: delete it")
    assert said.count("\n") == 1
    demo.check(tmp_path, None)
    demo.check(tmp_path, True)
    assert [path.name for path in tmp_path.iterdir()] == ["credentials.json"]


@pytest.mark.django_db
def test_only_the_secrets_of_the_file_are_revoked(cast: Cast) -> None:
    told, plain = tokens.create(cast.ada, ALL_SCOPES)
    other, kept = tokens.create(cast.ada, ["runs:read"])
    for person in (cast.ada, cast.bea):
        Client().force_login(person)
    demo_people.revoke_demo({"ada": told.public_id, "gone": "0" * 16})
    assert tokens.authenticate(plain) is None
    assert tokens.authenticate(kept) == Actor(person="ada", token=other.public_id)
    cast.ada.refresh_from_db()
    cast.bea.refresh_from_db()
    assert not cast.ada.has_usable_password()
    assert cast.ada.is_active
    assert cast.ada.groups.count() == 2
    assert cast.bea.has_usable_password()
    assert Session.objects.count() == 1
