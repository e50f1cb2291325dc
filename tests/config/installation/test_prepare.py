"""`manage.py prepare` collects static files only if their sources have changed."""

import os
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import Settings


@pytest.mark.django_db
@pytest.mark.parametrize("what", ["same", "changed", "touched", "new", "gone"])
def test_static_files_are_collected_again_if_their_sources_changed(
    settings: Settings, tmp_path: Path, what: str
) -> None:
    settings.STATIC_ROOT = tmp_path / "static"
    settings.STATICFILES_DIRS = [tmp_path / "sources"]
    source, collected = tmp_path / "sources" / "desk.css", tmp_path / "static" / "desk.css"
    source.parent.mkdir()
    source.write_text("one")
    call_command("prepare", verbosity=0)
    match what:
        case "same":
            collected.write_text("as it was collected")
            os.utime(collected, (0, 0))  # older than its source, so that it would be collected
        case "changed":
            source.write_text("three")
            os.utime(source, (2**31, 2**31))  # collectstatic compares whole seconds
        case "touched":
            os.utime(source, ns=(0, source.stat().st_mtime_ns + 1))
            collected.unlink()
        case "new":
            (source.parent / "inbox.css").write_text("two")
        case "gone":
            (collected.parent / ".collected").unlink()
            collected.unlink()
    call_command("prepare", verbosity=0)
    expected = "as it was collected" if what == "same" else source.read_text()
    assert collected.read_text() == expected
    assert (collected.parent / "inbox.css").exists() == (what == "new")
