"""The whole application starts, stops and starts again, also after kills and crashes."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from config.local.http_client import request
from config.local.servers.postgres import OWNER
from tests.support import commands, processes
from tests.support.people import until
from tests.support.stack import READY_WITHIN, Stack

pytestmark = pytest.mark.e2e

MOMENTS = ("Starting Postgres", "Preparing the database", "Starting web, worker and sweeper")
OTHERS = ("config.web", "sweep", "isolated", "config.local.servers.directory.server")


@pytest.fixture(scope="module")
def stack(sandbox: Path) -> Iterator[Stack]:
    """Start the application once for this file, interrupted three times. Each test continues from the one before."""
    stack = Stack(sandbox / "home of its own", SIGNOFF_WORKERS="2")
    stack.forked = False
    for moment in MOMENTS:
        stack.begin()
        stack.wait_for_line(moment, READY_WITHIN)
        stack.stop()
        assert stack.processes() == []
    stack.start()
    stack.forked = True  # from the next start on
    yield stack
    if stack.processes():
        stack.kill_everything()


def test_an_interrupted_first_start_is_completed_with_people_and_runs(stack: Stack) -> None:
    path = stack.home / "credentials.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_uid == os.geteuid()
    known = stack.credentials
    assert set(known["users"]) == {"ada", "bea", "cyril", "admin"}
    assert Path(known["mail"]["folder"]).is_dir()
    assert len({run["input"]["username"] for run in _suspended(stack, 3)}) == 3


def test_the_steps_of_its_runs_are_in_the_metrics(stack: Stack) -> None:
    """Of the entries all but the first of each run, which the web process writes, and the calls by tool.

    A worker that has ended took its counts along, so they are an upper bound.
    """
    fields = {**_suspended(stack, 3)[0]["input"], "username": "newhire4"}
    body = {"agent": "hr_onboarding", "input": fields}
    assert stack.ask("ada", "POST", "/api/v1/runs", body)[0] == 201
    until(lambda: _counted_calls(stack) or None, "the heartbeat to store the counts")
    _suspended(stack, 4)
    ((steps,),) = stack.rows("SELECT count(*) - count(DISTINCT run_id) FROM runtime_journalentry")
    assert 0 < sum(_values(stack, "signoff_step_commit_seconds_count")) <= steps
    assert sum(_values(stack, "signoff_tokens_total")) > 0
    assert sum(_values(stack, "signoff_requests_pending")) == 4
    assert min(_values(stack, "signoff_sweep_seconds")) > 0
    assert _counted_calls(stack) == [("create_account returned",)]


def test_only_deciding_processes_have_the_signing_key(stack: Stack) -> None:
    found = {}
    for name in ("config.web", "config.worker", "sweep"):
        for process in stack.named(name):
            keys = Path(process.environ()["KEYS_DIR"])
            assert (keys / "decisions.public").exists()
            found[name] = (keys / "decisions.private").exists()
    assert found == {"config.web": True, "config.worker": False, "sweep": False}


def test_web_and_workers_have_roles_that_own_nothing(stack: Stack) -> None:
    refused = (
        "SELECT pg_read_file('PG_VERSION')",
        "ALTER TABLE approvals_auditentry DISABLE TRIGGER USER",
        "DELETE FROM approvals_auditentry",
    )
    found = {}
    for name in ("config.web", "resumed,runs", "isolated", "sweep"):
        with psycopg.connect(
            stack.named(name)[0].environ()["DATABASE_URL"], autocommit=True
        ) as own:
            found[name] = own.info.user
            for statement in refused:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    own.execute(statement)
    assert found.pop("config.web") == "signoff"
    assert set(found.values()) == {"signoff_worker"}


def test_each_worker_stays_on_a_core_of_its_own(stack: Stack) -> None:
    others = [one.cpu_affinity() for name in OTHERS for one in stack.named(name)]
    assert _cores_of_workers(stack) == _cores_of_two()
    assert others == [sorted(os.sched_getaffinity(0))] * len(OTHERS)


def test_it_listens_on_loopback_only(stack: Stack) -> None:
    listening = set()
    for process in stack.processes():
        with suppress(psutil.NoSuchProcess):  # servers' children may have ended
            found = process.net_connections()
            listening |= {one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_ctrl_c_ends_everything(stack: Stack) -> None:
    before = stack.processes()
    stack.stop()
    assert not [process for process in before if process.is_running()]
    assert stack.processes() == []
    assert not (stack.home / "processes.json").exists()


def test_the_next_start_goes_on_with_the_same_data(stack: Stack) -> None:
    before = stack.credentials
    taken = int(before["url"].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", taken)):  # another program has our port now
        stack.start()
    after = stack.credentials
    assert after["url"] != before["url"]
    assert after["users"] == before["users"]
    _suspended(stack, 4)


def test_a_process_that_dies_is_started_again(stack: Stack) -> None:
    processes.of(stack, "worker").process.kill()
    stack.wait_for_line("worker is running again")
    assert _cores_of_workers(stack) == _cores_of_two()


def test_postgres_restarts_beside_a_stuck_child_of_the_old_one(stack: Stack) -> None:
    oldest, *parts = stack.named("postgres")
    parts[0].suspend()  # like a process that waits for a lock of a killed one
    oldest.kill()

    def back() -> bool | None:
        replaced = set(stack.named("postgres")).isdisjoint([oldest, *parts])
        return (replaced and stack.ask("ada", "GET", "/api/v1/runs")[0] == 200) or None

    until(back, "Postgres to be started again")


def test_the_next_start_recovers_from_a_kill_of_everything(stack: Stack) -> None:
    stack.kill_everything()
    stack.start()
    assert stack.ask("ada", "GET", "/api/v1/runs")[0] == 200
    worker = processes.of(stack, "worker").process  # it is ready with a live worker
    beats = "SELECT process FROM runtime_workerprocess WHERE beat_at >= pg_postmaster_start_time()"
    assert (worker.pid,) in stack.rows(beats)


def test_the_next_start_ends_orphans_of_a_killed_launcher(stack: Stack) -> None:
    orphans = stack.kill_launcher()
    stack.start()
    assert not [process for process in orphans if process.is_running()]
    assert stack.ask("ada", "GET", "/api/v1/runs")[0] == 200
    stack.stop(signal.SIGTERM)
    assert stack.processes() == []


def test_a_deleted_credentials_file_revokes_its_secrets(stack: Stack) -> None:
    known = stack.credentials
    (stack.home / "credentials.json").unlink()
    stack.extra["SIGNOFF_AGENTS"] = ""
    stack.start()
    assert any(line.startswith("credentials.json was deleted") for line in stack.said)
    for person in known["users"].values():
        assert request(_url(stack), "GET", "/api/v1/runs", token=person["token"])[0] == 401
    assert _manage(stack, "people", "list").stdout.count("valid tokens: 0") == 4
    assert not (stack.home / "credentials.json").exists()
    assert json.loads((stack.home / "home.json").read_text())["demo"] is False


def test_an_installation_without_a_demo_is_opened_by_a_command(stack: Stack) -> None:
    screen = "\n".join(stack.said)
    command = f"make manage HOME_DIR='{stack.home}' CMD=\"people add NAME --group admins\""
    assert command in screen
    assert "Log in" not in screen
    said = _manage(stack, "people", "add", "root", "--group", "admins", "--generate")
    assert said.returncode == 0
    assert re.search("^Password: .{20}$", said.stdout, re.MULTILINE)
    token = _manage(stack, "token", "create", "root", "--all").stdout.strip()
    assert request(_url(stack), "GET", "/api/v1/runs", token=token)[0] == 200
    assert _same_settings(stack)
    assert _manage(stack, "people", "disable", "admin").returncode == 0
    refused = _manage(stack, "people", "disable", "root")
    assert (refused.returncode, "root is the last active admin" in refused.stderr) == (1, True)


def _manage(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    return commands.python("-m", "config.local", "manage", "--home", stack.home, "--", *words)


def _url(stack: Stack) -> str:
    return next(line.split()[-1] for line in stack.said if line.startswith("Signoff is ready at"))


def _same_settings(stack: Stack) -> bool:
    """Tell whether a command has the web process's environment, except for its Postgres role."""
    (web,) = stack.named("config.web")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    seen = json.loads(_manage(stack, "shell", "-v", "0", "-c", code).stdout)
    # Only `make up` has the number of workers.
    names = re.compile("(DATABASE|REDIS|SCIM|EMAIL|PUBLIC)_URL|.*KEYS_DIR|SIGNOFF_(?!WORKERS).*")
    ours = {name: value for name, value in web.environ().items() if names.fullmatch(name)}
    password = json.loads((stack.home / "secrets.json").read_text())["postgres_owner"]
    ours["DATABASE_URL"] = re.sub("//[^@]+@", f"//{OWNER}:{password}@", ours["DATABASE_URL"])
    return {name: seen.get(name) for name in ours} == ours


def _suspended(stack: Stack, count: int) -> list[dict[str, Any]]:
    """Return all runs once this many, and no others, wait for a person."""

    def read() -> list[dict[str, Any]] | None:
        _, runs = stack.ask("ada", "GET", "/api/v1/runs")
        statuses = [run["status"] for run in runs["items"]]
        return runs["items"] if statuses == ["suspended"] * count else None

    return until(read, f"{count} runs to be suspended")


def _counted_calls(stack: Stack) -> list[tuple[str]]:
    return stack.rows(
        "SELECT DISTINCT jsonb_object_keys(measures::jsonb -> 'calls') FROM runtime_workerprocess"
    )


def _values(stack: Stack, name: str) -> list[float]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{stack.url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return [one.value for one in samples if one.name == name]


def _cores_of_workers(stack: Stack) -> list[list[int]]:
    return sorted(worker.cpu_affinity() for worker in stack.named("resumed,runs"))


def _cores_of_two() -> list[list[int]]:
    """Two workers get cores, also on a machine with one core."""
    first, *more = sorted(os.sched_getaffinity(0))
    return [[first], [next(iter(more), first)]]
