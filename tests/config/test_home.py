"""A data folder belongs to one start at a time, keeps its secrets, and leaves alone what was there."""

import os
import stat
from pathlib import Path

import pytest

from config.local import accounts, home
from config.local.errors import Refused
from config.local.home import Home


def _open(folder: Path) -> Home:
    return home.open_home(folder, accounts.starter())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_in_use_is_refused_with_the_id_of_who_holds_it(tmp_path: Path) -> None:
    first = _open(tmp_path / "home")
    with pytest.raises(Refused, match=f"in use by process {os.getpid()}"):
        _open(tmp_path / "home")
    os.close(first.lock)
    os.close(_open(tmp_path / "home").lock)


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(0o755)
    opened = _open(folder)
    home.furnish(opened, accounts.starter())
    assert _mode(folder) == 0o755
    os.close(opened.lock)


def test_what_is_secret_is_for_its_owner_alone(tmp_path: Path) -> None:
    opened = _open(tmp_path / "home")
    opened.secret("postgres")
    home.furnish(opened, accounts.starter())
    assert _mode(tmp_path / "home") == 0o700
    for secret in (opened.folder / "secrets.json", opened.secret_key, opened.folder / "home.json"):
        assert _mode(secret) == 0o600
    os.close(opened.lock)


def test_id_and_secrets_stay_and_differ_from_any_other_folder(tmp_path: Path) -> None:
    told = []
    for name in ("one", "two", "one"):
        opened = _open(tmp_path / name)
        home.furnish(opened, accounts.starter())
        told.append((opened.id, opened.secret("scim"), opened.secret_key.read_text()))
        os.close(opened.lock)
    assert told[0] == told[2]
    assert not set(told[0]) & set(told[1])


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/home"])
def test_a_place_that_cannot_hold_data_is_refused_in_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused) as refused:
        _open(tmp_path / place)
    assert "\n" not in str(refused.value)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "home.json").write_text("{")
    with pytest.raises(Refused, match=r"home\.json is damaged"):
        _open(folder)
