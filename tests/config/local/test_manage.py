"""`make manage`, starts without demo people, and the end of their access once their file is deleted."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from approvals.people import tokens
from approvals.rights.principals import ALL_SCOPES
from config.local import data_dir, demo, demo_people
from config.local.__main__ import main
from config.local.processes import users
from runtime.ports.access import Actor
from tests.support.seeds import Cast


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
    home = data_dir.open_home(tmp_path / "home", users.unprivileged())
    monkeypatch.setattr(demo, "_run", Mock(side_effect=AssertionError("people are made")))
    stack: Any = Mock(home=home)
    for wanted in (False, None):
        assert demo.ensure_demo(stack, "127.0.0.1", wanted, print) is None
    assert home.get("demo") is False
    assert demo.next_step(home) == (
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
