"""`lock.sh` against an index on loopback that grows, and that goes away."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.env.environment import ROOT
from tests.config.installation.packages import describe, make_wheel, served


@dataclass(frozen=True, kw_only=True)
class Project:
    """A folder with requirements, an index, and an environment for uv's cache."""

    folder: Path
    url: str
    index_ends: ExitStack

    def release(self, name: str, version: str, *needs: str, extras: tuple[str, ...] = ()) -> None:
        metadata = describe(name, version, needs=needs, extras=extras)
        make_wheel(self.folder / "index" / name, name, version, metadata)

    def run(self, mode: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [
                "sh",
                self.folder / "requirements" / "lock.sh",
                mode,
                self.folder / "venv" / "bin" / "python",
            ],
            env={"PATH": os.environ["PATH"], "UV_DEFAULT_INDEX": self.url, "UV_HTTP_RETRIES": "0"},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose locks are current, and whose uv cache is empty."""
    requirements, python = tmp_path / "requirements", tmp_path / "venv" / "bin" / "python"
    for folder in (requirements, tmp_path / "index", python.parent):
        folder.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with ExitStack() as index_ends:
        url = index_ends.enter_context(served(tmp_path / "index"))
        project = Project(folder=tmp_path, url=url, index_ends=index_ends)
        shutil.copy(ROOT / "requirements" / "lock.sh", requirements)
        for lock, name in {"runtime": "top", "embedded": "server", "dev": "checker"}.items():
            (requirements / f"{lock}.in").write_text(f"{name}\n")
        project.release("top", "1", "kit[more]", "base")
        project.release("kit", "1", extras=("more",))
        for name in ("base", "more", "server", "checker"):
            project.release(name, "1")
        written = project.run("write")
        assert (written.returncode, written.stderr) == (0, "")
        shutil.rmtree(tmp_path / "venv" / "uv-cache")
        yield project


def test_newer_releases_leave_the_locks_current_also_without_network(project: Project) -> None:
    project.release("kit", "2", extras=("more",))
    current = (0, "The locks are current\n")
    done = project.run("check")
    assert (done.returncode, done.stdout) == current
    project.release("base", "2")
    lock = project.folder / "requirements" / "runtime.txt"
    before = lock.read_text()
    lock.write_text(before.replace("base==1", "base==2"))  # newer than the cache
    done = project.run("check")
    assert (done.returncode, done.stdout) == current, done
    project.index_ends.close()
    done = project.run("check")
    assert (done.returncode, done.stdout, done.stderr) == (*current, "")


@pytest.mark.parametrize("package", ["base", "more"])
def test_a_lock_without_a_package_is_not_current(project: Project, package: str) -> None:
    lock = project.folder / "requirements" / "runtime.txt"
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
