"""`lock.sh` against an index on loopback that grows, and that goes away."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from config.env.environment import ROOT
from tests.config.installation.packages import describe, make_wheel, served


@dataclass(frozen=True, kw_only=True)
class Project:
    """A folder with requirements, an index, and an environment for uv's cache."""

    folder: Path
    url: str
    index_ends: ExitStack = field(default_factory=ExitStack)

    @property
    def requirements(self) -> Path:
        return self.folder / "requirements"

    def release(self, name: str, version: str, *needs: str, extras: tuple[str, ...] = ()) -> None:
        metadata = describe(name, version, needs=needs, extras=extras)
        make_wheel(self.folder / "index" / name, name, version, metadata)

    def run(self, mode: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["sh", self.requirements / "lock.sh", mode, self.folder / "venv" / "bin" / "python"],
            env={"PATH": os.environ["PATH"], "UV_DEFAULT_INDEX": self.url, "UV_HTTP_RETRIES": "0"},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose locks are current, and whose uv cache is empty."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "index").mkdir()
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with ExitStack() as index_ends:
        url = index_ends.enter_context(served(tmp_path / "index"))
        project = Project(folder=tmp_path, url=url, index_ends=index_ends)
        shutil.copy(ROOT / "requirements" / "lock.sh", project.requirements)
        for lock, name in {"runtime": "top", "embedded": "server", "dev": "checker"}.items():
            (project.requirements / f"{lock}.in").write_text(f"{name}\n")
        project.release("top", "1", "kit[more]", "base")
        project.release("kit", "1", extras=("more",))
        for name in ("base", "more", "server", "checker"):
            project.release(name, "1")
        written = project.run("write")
        assert (written.returncode, written.stderr) == (0, "")
        shutil.rmtree(tmp_path / "venv" / "uv-cache")
        yield project


def test_newer_releases_leave_the_locks_current(project: Project) -> None:
    project.release("kit", "2", extras=("more",))
    project.release("base", "2")
    done = project.run("check")
    assert (done.returncode, done.stdout) == (0, "The locks are current\n")


def test_a_second_check_needs_no_network(project: Project) -> None:
    assert project.run("check").returncode == 0
    project.index_ends.close()
    done = project.run("check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "The locks are current\n", "")


def test_a_pin_newer_than_the_cache_is_looked_up(project: Project) -> None:
    assert project.run("check").returncode == 0
    project.release("base", "2")
    lock = project.requirements / "runtime.txt"
    lock.write_text(lock.read_text().replace("base==1", "base==2"))
    done = project.run("check")
    assert (done.returncode, done.stdout) == (0, "The locks are current\n"), done


@pytest.mark.parametrize("package", ["base", "more"])
def test_a_lock_without_a_package_is_not_current(project: Project, package: str) -> None:
    assert project.run("check").returncode == 0
    lock = project.requirements / "runtime.txt"
    complete = lock.read_text()
    pins = complete.split("\n" + package + "==")
    lock.write_text(pins[0] + "\n" + pins[1].partition("top\n")[2])
    done = project.run("check")
    assert (done.returncode, done.stderr) == (
        1,
        "requirements/runtime.txt is not current: run make lock\n",
    )
    assert f"\n+{package}==1" in done.stdout
    assert project.run("write").returncode == 0
    assert lock.read_text() == complete
