"""A start ends only processes that are provably ours: by their mark, or by their id and start time together."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from config.local import data_dir, orphans
from config.local.data_dir import DataDir
from config.local.processes import users
from config.local.processes.spawn import MARK

_WAIT = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[DataDir]:
    home = data_dir.open_home(tmp_path / "home", users.starter())
    yield home
    os.close(home.lock)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[str]]:
    """Yield a waiting process without a mark."""
    with _waiting({}) as process:
        yield process
        process.kill()


def _waiting(extra: dict[str, str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        _WAIT, env=os.environ | extra, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"  # its environment is complete now
    return process


def test_an_unrecorded_process_with_our_mark_is_ended(home: DataDir) -> None:
    with _waiting({MARK: home.id}) as process:
        alive = psutil.Process(process.pid)
        assert orphans.clear(home) == 1
        assert not alive.is_running()


def test_a_process_of_another_folder_is_left_alone(
    home: DataDir, bystander: subprocess.Popen[str]
) -> None:
    with _waiting({MARK: "another"}) as process:
        assert orphans.clear(home) == 0
        assert process.poll() is None
        process.kill()
    assert bystander.poll() is None


def test_a_noted_process_is_ended(home: DataDir, bystander: subprocess.Popen[str]) -> None:
    orphans.record(home, home.folder, [bystander.pid])
    alive = psutil.Process(bystander.pid)
    assert orphans.clear(home) == 1
    assert not alive.is_running()


def test_a_process_that_reuses_an_id_is_left_alone(
    home: DataDir, bystander: subprocess.Popen[str]
) -> None:
    born = psutil.Process(bystander.pid).create_time() - 60
    data_dir.write(home.processes, {"processes": [{"pid": bystander.pid, "born": born}]})
    assert orphans.clear(home) == 0
    assert bystander.poll() is None


def test_only_a_folder_of_sockets_is_removed(home: DataDir, tmp_path: Path) -> None:
    for name, stays in (("abeyance-x", False), ("precious", True)):
        folder = tmp_path / name
        folder.mkdir()
        orphans.record(home, folder, [])
        orphans.clear(home)
        assert folder.exists() == stays
