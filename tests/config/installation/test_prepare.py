"""`manage.py prepare` collects static files only if their sources have changed."""

import os
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import Settings


@pytest.fixture
def root(settings: Settings, tmp_path: Path, db: None) -> Path:
    settings.STATIC_ROOT = tmp_path / "static"
    settings.STATICFILES_DIRS = [tmp_path / "sources"]
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "desk.css").write_text("one")
    call_command("prepare", verbosity=0)
    return tmp_path


def test_the_same_static_files_are_not_collected_again(root: Path) -> None:
    collected = root / "static" / "desk.css"
    collected.write_text("as it was collected")
    os.utime(collected, (0, 0))  # older than its source, so that it would be collected
    call_command("prepare", verbosity=0)
    assert collected.read_text() == "as it was collected"


@pytest.mark.parametrize("what", ["changed", "touched", "new", "gone"])
def test_other_static_files_are_collected(root: Path, what: str) -> None:
    source, collected = root / "sources" / "desk.css", root / "static" / "desk.css"
    match what:
        case "changed":
            source.write_text("three")
            os.utime(source, (2**31, 2**31))  # collectstatic compares whole seconds
        case "touched":
            os.utime(source, ns=(0, source.stat().st_mtime_ns + 1))
            collected.unlink()
        case "new":
            (root / "sources" / "inbox.css").write_text("two")
        case "gone":
            (root / "static" / ".collected").unlink()
            collected.unlink()
    call_command("prepare", verbosity=0)
    assert collected.read_text() == source.read_text()
    assert (root / "static" / "inbox.css").exists() == (what == "new")
