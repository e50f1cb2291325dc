"""`make manage`, starts without demo people, and the end of their access once their file is deleted."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from approvals.accounts import tokens
from approvals.permissions.scopes import ALL_SCOPES
from config.local import demo, demo_people
from config.local.__main__ import main
from config.local.http_client import request
from config.local.servers.roles import OWNER
from runtime.ports.access import Actor
from tests.support import commands
from tests.support.seeds import Cast
from tests.support.stack import Stack


def _manage(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return commands.python("-m", "config.local", "manage", "--home", str(home), "--", *words)


def _url(stack: Stack) -> str:
    return next(line.split()[-1] for line in stack.said if line.startswith("Abeyance is ready at"))


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


@pytest.mark.e2e
def test_an_installation_without_a_demo_is_opened_by_a_command(sandbox: Path) -> None:
    stack = Stack(sandbox / "no demo", demo="0", ABEYANCE_AGENTS="")
    with stack:
        assert not (stack.home / "credentials.json").exists()
        screen = "\n".join(stack.said)
        command = f"make manage HOME_DIR='{stack.home}' CMD=\"people add NAME --group admins\""
        assert command in screen
        assert "Log in" not in screen
        assert _manage(stack.home, "people", "list").stdout == ""
        said = _manage(stack.home, "people", "add", "root", "--group", "admins", "--generate")
        assert said.returncode == 0
        assert re.search("^Password: .{20}$", said.stdout, re.MULTILINE)
        token = _manage(stack.home, "token", "create", "root", "--all").stdout.strip()
        assert request(_url(stack), "GET", "/api/v1/runs", token=token)[0] == 200
        assert _same_settings(stack)
        refused = _manage(stack.home, "people", "disable", "root")
        assert (refused.returncode, "root is the last active admin" in refused.stderr) == (1, True)


def _same_settings(stack: Stack) -> bool:
    """Tell whether a command has the web process's environment, except for its Postgres role."""
    (web,) = stack.named("config.web")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    seen = json.loads(_manage(stack.home, "shell", "-v", "0", "-c", code).stdout)
    # Only `make up` has the number of workers.
    names = re.compile("(DATABASE|REDIS|SCIM|EMAIL|PUBLIC)_URL|.*KEYS_DIR|ABEYANCE_(?!WORKERS).*")
    ours = {name: value for name, value in web.environ().items() if names.fullmatch(name)}
    password = json.loads((stack.home / "secrets.json").read_text())["postgres_owner"]
    ours["DATABASE_URL"] = re.sub("//[^@]+@", f"//{OWNER}:{password}@", ours["DATABASE_URL"])
    return {name: seen.get(name) for name in ours} == ours


def test_a_folder_of_a_demo_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "credentials.json").write_text("{}")
    assert main(["up", "--home", str(tmp_path), "--demo", "0"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"abeyance: {tmp_path}/credentials.json belongs to a demo: delete it")
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
