"""An environment of packages that cannot be made is one line that says what to do."""

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from config.env import ROOT
from tests.config.disks import disk
from tests.config.lines import line_of

ENVIRONMENT = ROOT / "requirements" / "environment.py"
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one lock of one package that no index here has."""
    folder = tmp_path / "requirements"
    folder.mkdir()
    shutil.copy(ENVIRONMENT, folder)
    (folder / "tiny.txt").write_text(f"nobodys-package==1.0 --hash=sha256:{'0' * 64}\n")
    return tmp_path


def make_environment(
    checkout: Path, folder: Path, *before: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """`environment.py` as the Makefile calls it; `before` is run in the same interpreter first."""
    script = str(checkout / "requirements" / "environment.py")
    code = ";".join(
        [
            *("import runpy, sys", *before),
            f"sys.argv[:] = {[script, str(folder), 'any', 'tiny']!r}",
            f"runpy.run_path({script!r}, run_name='__main__')",
        ]
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PIP_RETRIES": "1", "PIP_TIMEOUT": "2", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_python_that_is_too_old(checkout: Path) -> None:
    done = make_environment(checkout, checkout / "venv", "sys.version_info = (3, 9, 2)")
    assert line_of(done.stderr) == (
        "Abeyance needs Python 3.11 or newer, but this is 3.9: make PYTHON=… chooses another"
    )


@pytest.mark.parametrize(
    "module",
    [
        "raise ModuleNotFoundError(\"No module named 'venv'\")",
        "print('ensurepip is not available.'); raise SystemExit(1)",
    ],
)
def test_a_python_without_venv(checkout: Path, module: str) -> None:
    shadow = checkout / "shadow"
    shadow.mkdir()
    (shadow / "venv.py").write_text(module)
    done = make_environment(checkout, checkout / "venv", PYTHONPATH=str(shadow))
    assert re.fullmatch(
        r"\S+ lacks the module venv: install it \(Debian, Ubuntu: apt install python3\.\d+-venv\),"
        r" or choose another with make PYTHON=…",
        line_of(done.stderr),
    )
    assert done.returncode == 1


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has pip and nothing else."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder


def test_no_network_while_installing(checkout: Path, empty_environment: Path) -> None:
    done = make_environment(checkout, empty_environment, PIP_INDEX_URL=f"http://{NOWHERE}/simple")
    assert line_of(done.stderr) == (
        "no package can be downloaded: is this machine online?"
        " (HTTPS_PROXY names a proxy, PIP_INDEX_URL a mirror)"
    )


def test_a_package_that_would_have_to_be_compiled(checkout: Path, empty_environment: Path) -> None:
    packages = checkout / "packages"
    packages.mkdir()
    (packages / "nobodys_package-1.0.tar.gz").write_bytes(b"source, for which a compiler is needed")
    done = make_environment(
        checkout, empty_environment, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(packages)
    )
    assert re.fullmatch(
        r"there is no wheel of nobodys-package==1\.0 for Python 3\.\d+ on \S+ \S+, and nothing is"
        r" compiled here: choose another Python with make PYTHON=…",
        line_of(done.stderr),
    )


def test_a_package_that_is_not_the_one_of_the_lock(checkout: Path, empty_environment: Path) -> None:
    packages = checkout / "packages"
    packages.mkdir()
    wheel = packages / "nobodys_package-1.0-py3-none-any.whl"
    wheel.write_bytes(b"not what it says")
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() != "0" * 64
    done = make_environment(
        checkout, empty_environment, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(packages)
    )
    assert line_of(done.stderr) == (
        "a package that was downloaded is not the one that tiny.txt names:"
        " use another mirror or network"
    )


@pytest.mark.parametrize(
    ("size", "read_only", "line"),
    [
        (1_000_000, False, "the disk is full: make room for {folder} and run it again"),
        (
            1_000_000,
            True,
            "{folder} (is on a read-only disk|cannot be written by this account): .*",
        ),
    ],
)
def test_a_checkout_that_cannot_hold_an_environment(
    checkout: Path, tmp_path: Path, size: int, read_only: bool, line: str
) -> None:
    with disk(tmp_path / "disk", size, read_only=read_only) as place:
        if place is None:  # no right to mount: what venv says there is what is looked at
            said = {False: os.strerror(errno.ENOSPC), True: os.strerror(errno.EROFS)}[read_only]
            shadow = checkout / "shadow"
            shadow.mkdir()
            (shadow / "venv.py").write_text(f"raise SystemExit('Error: {said}')")
            folder, variables = tmp_path / "venv", {"PYTHONPATH": str(shadow)}
        else:
            folder, variables = place / "venv", {}
        done = make_environment(checkout, folder, **variables)
    assert re.fullmatch(line.format(folder=re.escape(str(folder))), line_of(done.stderr))
