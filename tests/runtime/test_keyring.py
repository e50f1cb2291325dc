"""Keys on disk: modes, rotation, foreign ids, broken files."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from runtime import keyring
from runtime.errors import KeyMissing


@pytest.fixture
def folder(tmp_path: Path, settings: Settings) -> Path:
    settings.KEYS_DIR = tmp_path / "keys"
    keyring._ring.cache_clear()
    return tmp_path / "keys"


@pytest.fixture(autouse=True)
def _forget() -> object:
    yield
    keyring._ring.cache_clear()


def test_a_key_is_made_once_and_readable_by_its_owner_only(folder: Path) -> None:
    path = keyring.ensure("journal")
    first = path.read_text()
    assert keyring.ensure("journal").read_text() == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert [child.name for child in folder.iterdir()] == ["journal.keys"]


def test_only_the_very_parts_that_were_sealed_verify(folder: Path) -> None:
    keyring.ensure("journal")
    seal = keyring.seal("journal", "run", "1", "body")
    assert keyring.verify("journal", seal, "run", "1", "body")
    assert not keyring.verify("journal", seal, "run", "1", "body ")
    assert not keyring.verify("journal", seal, "run1", "", "body")


def test_a_new_first_key_signs_and_the_old_one_still_verifies(folder: Path) -> None:
    path = keyring.ensure("journal")
    old = keyring.seal("journal", "x")
    path.write_text(f"new:{'ab' * 32}\n" + path.read_text())
    keyring._ring.cache_clear()
    assert keyring.seal("journal", "x").key_id == "new"
    assert keyring.verify("journal", old, "x")


def test_a_key_added_while_the_process_runs_is_found(folder: Path) -> None:
    path = keyring.ensure("journal")
    keyring.seal("journal", "x")
    before = path.read_text()
    path.write_text(f"new:{'ab' * 32}\n" + before)
    keyring._ring.cache_clear()
    new = keyring.seal("journal", "x")
    path.write_text(before)
    keyring._ring.cache_clear()
    with pytest.raises(KeyMissing, match="new"):
        keyring.verify("journal", new, "x")
    path.write_text(f"{before}new:{'ab' * 32}\n")
    assert keyring.verify("journal", new, "x")


@pytest.mark.parametrize("text", ["", "nothing", "id:xyz", "id:abcd", f":{'ab' * 32}"])
def test_a_broken_key_file_is_named(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "journal.keys").write_text(text)
    with pytest.raises(ImproperlyConfigured, match=r"journal\.keys"):
        keyring.seal("journal", "x")


def test_a_missing_key_file_says_how_to_make_it(folder: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"manage\.py prepare"):
        keyring.seal("journal", "x")
