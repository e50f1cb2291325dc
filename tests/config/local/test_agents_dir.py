"""A folder of agents that workers cannot read ends the start with one line that says what to do."""

import os
from pathlib import Path

import pytest

from config.local.errors import Refused
from config.local.processes import users
from config.local.up import require_agents
from tests.support import commands


def test_a_folder_that_workers_cannot_read_is_refused(sandbox: Path) -> None:
    workers = users.unprivileged()
    folder = sandbox / "agents"
    folder.mkdir(mode=0o700 if workers.switch else 0o000)
    with pytest.raises(Refused) as problem:
        require_agents(str(folder), workers)
    said = str(problem.value)
    assert said.startswith(f"AGENTS_DIR: workers run as {workers.name}, who cannot read {folder}; ")
    assert "\n" not in said


def test_a_folder_that_they_can_read_or_none_is_not(sandbox: Path) -> None:
    require_agents(str(sandbox), users.unprivileged())
    require_agents("", users.unprivileged())


def test_a_folder_that_is_none_ends_the_start_with_one_line(sandbox: Path) -> None:
    home = str(sandbox / "home of no agents")
    done = commands.python(
        "-m",
        "config.local",
        "up",
        "--home",
        home,
        env={**os.environ, "AGENTS_DIR": "/nowhere/agents"},
    )
    assert done.returncode == 1
    said = "abeyance: AGENTS_DIR is not a folder that can be reached: /nowhere/agents\n"
    assert done.stderr == said


def test_a_broken_module_ends_it_before_any_server(sandbox: Path) -> None:
    folder = sandbox / "broken agents"
    folder.mkdir()
    (folder / "broken_shop.py").write_text("x = 1\ny = x.price\n")
    home = sandbox / "home of broken agents"
    done = commands.python(
        "-m",
        "config.local",
        "up",
        "--home",
        str(home),
        "--port",
        "0",
        env={**os.environ, "AGENTS_DIR": str(folder), "ABEYANCE_AGENTS": "broken_shop"},
    )
    assert done.returncode == 1
    place = f"{folder}/broken_shop.py:2"
    cause = "AttributeError: 'int' object has no attribute 'price'"
    assert done.stderr == f"abeyance: cannot load agents from broken_shop: {place}: {cause}\n"
    assert not (home / "logs" / "postgres.log").exists()
