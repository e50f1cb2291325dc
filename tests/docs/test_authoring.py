"""Every block of Python in docs/authoring.md, put into the files it names and run as an author would."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from config.env import ROOT
from tests.docs.pages import blocks

PAGE = ROOT / "docs" / "authoring.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's files, their blocks in the order of the page."""
    for block in blocks(PAGE, "python"):
        first, rest = block.text.split("\n", 1)
        name = re.fullmatch(r"# ([a-z_]+\.py)", first)
        assert name is not None, f"a block of {PAGE.name} names no file: {first}"
        with (tmp_path / name[1]).open("a", encoding="utf-8") as file:
            file.write(f"{rest}\n")
    return tmp_path


def test_every_block_runs(folder: Path, postgres_url: str) -> None:
    written = sum(block.text.count("\ndef test_") for block in blocks(PAGE, "python"))
    assert written > 10
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(folder), "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": _of_its_own(postgres_url)},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"{written} passed" in done.stdout


def _of_its_own(url: str) -> str:
    """Another database of the same server, since this one's name is taken by these tests."""
    return urlsplit(url)._replace(path="/authoring").geturl()
