"""Every service of docker-compose.yml does its part of the main job, with the image's files and its own settings."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from config.env.environment import ROOT
from config.local.http_client import request
from tests.support.deployment.services import Services
from tests.support.people import newcomer, until

pytestmark = pytest.mark.e2e

BACKUP = (ROOT / "docs/how-to/back-up-and-restore.md").read_text()
PSQL = ("psql", "-U", "signoff", "-At")
COUNT = "SELECT " + ", ".join(
    f"(SELECT count(*) FROM {table})"
    for table in ("runtime_journalentry", "approvals_approval", "approvals_auditentry", "auth_user")
)

NAMES = ("postgres", "redis", "web", "sweeper", "worker")


@pytest.fixture(scope="module")
def services(sandbox: Path) -> Iterator[Services]:
    services = Services(sandbox / "compose")
    services.run("web", "python", "manage.py", "collectstatic", "--no-input")
    with ExitStack() as running:
        running.enter_context(services.outside())
        running.enter_context(services.database())
        running.enter_context(services.running("redis"))
        until(lambda: services.healthy("redis") or None, "redis to be healthy")
        services.run("prepare")
        before = _files(services.image)
        for name in ("web", "sweeper", "worker"):
            running.enter_context(services.running(name))
        yield services
    assert _files(services.image) == before  # a root file system that is read-only is enough


@pytest.fixture(scope="module")
def tokens(services: Services) -> dict[str, str]:
    """People made by the commands that docs/how-to/manage-people.md names."""
    manage = ("python", "manage.py")
    for name, group in (("ada", "requesters"), ("bea", "reviewers")):
        services.run("web", *manage, "people", "add", name, "--group", group, "--generate")
    return {
        name: services.run("web", *manage, "token", "create", name, "--all").strip()
        for name in ("ada", "bea")
    }


def test_a_run_is_approved_and_completed(services: Services, tokens: dict[str, str]) -> None:
    def api(person: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return request(services.url, method, f"/api/v1{path}", token=tokens[person], body=body)

    def reached(status: str) -> dict[str, Any] | None:
        found = dict(api("ada", "GET", f"/runs/{run}")[1])
        return found if found["status"] == status else None

    for name in NAMES:
        until(lambda name=name: services.healthy(name) or None, f"{name} to be healthy")  # type: ignore[misc]
    body = {"agent": "hr_onboarding", "input": newcomer("composed")}
    status, started = api("ada", "POST", "/runs", body)
    assert status == 201, started
    run = started["id"]
    until(lambda: reached("suspended"), "the run to wait")
    (approval,) = api("bea", "GET", f"/approvals?status=pending&run={run}")[1]["items"]
    said = {name: approval[name] for name in ("digest", "confirm")} | {"verdict": "approve"}
    assert api("bea", "POST", f"/approvals/{approval['id']}/decision", said)[0] == 200
    until(lambda: reached("completed"), "the run to complete")
    assert len(list(services.mail.glob("*.eml"))) == 1


def test_the_key_that_signs_decisions_is_the_webs_alone(services: Services) -> None:
    private = {
        name: sorted(file.stem for file in services.keys(name).glob("*.private"))
        for name in NAMES[2:]
    }
    assert private == {"web": ["decisions", "exports", "rights"], "sweeper": [], "worker": []}
    assert (services.keys("worker") / "decisions.public").read_text() == (
        services.keys("web") / "decisions.public"
    ).read_text()


def test_a_backup_is_restored_by_the_documented_commands(services: Services) -> None:
    """Into another database of the same server, in which there is then as much as in the first."""
    backup, restore = (
        re.findall(rf"exec -T postgres ({program} [^<>`]+?) [<>]", BACKUP)[0].split()
        for program in ("pg_dump", "pg_restore")
    )
    dump = services.postgres(*backup)
    services.postgres("createdb", "-U", "signoff", "restored")
    assert restore[-2:] == ["-d", "signoff"]
    services.postgres(*restore[:-1], "restored", told=dump)
    counted = [
        services.postgres(*PSQL, "-d", database, "-c", COUNT)
        for database in ("signoff", "restored")
    ]
    assert counted[0] == counted[1]
    assert not counted[0].startswith(b"0")
    archived = services.run("prepare", "sh", "-c", 'tar -C "$KEYS_DIR" -cf - . | tar -tf -')
    assert "./decisions.private" in archived.split()


def test_a_key_changes_only_by_rotation_and_reaches_the_workers(services: Services) -> None:
    before = {file.name: file.read_text() for file in services.keys("web").iterdir()}
    services.run("prepare")
    assert {file.name: file.read_text() for file in services.keys("web").iterdir()} == before
    services.run("prepare", "python", "manage.py", "rotate_key", "decisions")
    rings = [(services.keys(name) / "decisions.public").read_text() for name in ("web", "worker")]
    assert rings[0] == rings[1]
    assert len(rings[0].split()) == 2
    assert list(services.keys("worker").glob("*.private")) == []


def _files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
