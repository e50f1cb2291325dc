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


def _waiting(extra: dict[str, str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        _WAIT, env=os.environ | extra, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"  # its environment is complete now
    return process


def test_only_processes_that_are_ours_are_ended(home: DataDir) -> None:
    with (
        _waiting({MARK: home.id}) as marked,
        _waiting({MARK: "another"}) as foreign,
        _waiting({}) as recorded,
        _waiting({}) as reusing,
    ):
        alive = [psutil.Process(process.pid) for process in (marked, recorded)]
        orphans.record(home, home.folder, [recorded.pid])
        assert orphans.clear(home) == 2
        assert not [process for process in alive if process.is_running()]
        born = psutil.Process(reusing.pid).create_time() - 60
        data_dir.write(home.processes, {"processes": [{"pid": reusing.pid, "born": born}]})
        assert orphans.clear(home) == 0
        for process in (foreign, reusing):
            assert process.poll() is None
            process.kill()


def test_only_a_folder_of_sockets_is_removed(home: DataDir, tmp_path: Path) -> None:
    for name, stays in (("abeyance-x", False), ("precious", True)):
        folder = tmp_path / name
        folder.mkdir()
        orphans.record(home, folder, [])
        orphans.clear(home)
        assert folder.exists() == stays
