"""A copy of the tree in which one file is changed, and whether tests see that."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from config.env.environment import ROOT

KEPT_OUT = shutil.ignore_patterns(".*", "node_modules")
# A change that takes memory without end is stopped before the machine is full.
LIMITED = ("sh", "-c", f'ulimit -v {4 * 1024**2}; exec "$@"', "sh", sys.executable, "-m", "pytest")


@contextmanager
def copy() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="signoff-mutants-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for one in ROOT.iterdir():
            if one.is_dir() and not one.name.startswith("."):
                shutil.copytree(one, folder / one.name, ignore=KEPT_OUT)
            elif one.is_file():
                shutil.copy2(one, folder / one.name)
        yield folder


@contextmanager
def changed(folder: Path, file: str, text: str) -> Iterator[None]:
    """Give a file of the copy another text for as long as the block lasts."""
    (folder / file).write_text(text)
    try:
        yield
    finally:
        shutil.copy2(ROOT / file, folder / file)


def outcome(
    folder: Path, tests: Sequence[str], *, within: float, **variables: str
) -> tuple[int, str]:
    """Run tests in a copy. Return pytest's exit code with its output, 1 for tests that do not end in time.

    No bytecode is written: that of one change would look like that of another made in the same second.
    """
    words = ("-q", "-x", "--no-header", "--tb=line", "-p", "no:cacheprovider", *tests)
    try:
        done = subprocess.run(
            [*LIMITED, *words],
            cwd=folder,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=within,
        )
    except subprocess.TimeoutExpired:
        return 1, "They did not end in time."
    return done.returncode, done.stdout
