"""A failed installation of packages prints one line that says what to do."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from config.env.environment import ROOT
from tests.config.lines import line_of
from tests.support import commands

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with one lock, of one package that no index here has."""
    folder = tmp_path / "requirements"
    folder.mkdir()
    shutil.copy(ROOT / "requirements" / "environment.py", folder)
    (folder / "tiny.in").write_text("nobodys-package\n")
    (folder / "tiny.txt").write_text(f"nobodys-package==1.0 --hash=sha256:{'0' * 64}\n")
    return tmp_path


def make_environment(
    checkout: Path,
    folder: Path,
    *before: str,
    wheels: Path | None = None,
    also: Path | None = None,
    **variables: str,
) -> "subprocess.CompletedProcess[str]":
    """Run `environment.py` as the Makefile does, `before` first in the same interpreter.

    With `wheels`, a folder, that is the only index.
    """
    if wheels:
        variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    script = str(checkout / "requirements" / "environment.py")
    arguments = [script, *(["--also", str(also)] if also else []), str(folder), "tiny"]
    run = f"sys.argv[:] = {arguments!r}; runpy.run_path({script!r}, run_name='__main__')"
    return commands.python(
        *("-c", "; ".join(["import runpy, sys", *before, run])),
        env={"PATH": os.environ["PATH"], "PIP_RETRIES": "1", "PIP_TIMEOUT": "2", **variables},
    )


def test_a_python_that_is_too_old(checkout: Path) -> None:
    done = make_environment(checkout, checkout / "venv", "sys.version_info = (3, 9, 2)")
    assert line_of(done.stderr) == (
        "Signoff needs Python 3.11 or newer, but this is 3.9: make PYTHON=… chooses another"
    )


def test_a_folder_of_other_files_is_not_replaced(checkout: Path) -> None:
    done = make_environment(checkout, folder := checkout / "requirements")
    assert line_of(done.stderr) == f"{folder} is not a Python environment, so it is not replaced"
    assert (folder / "tiny.in").exists()


LACKS_VENV = (
    r"\S+ lacks the module venv: install it \(Debian, Ubuntu: apt install python3\.\d+-venv\),"
    r" or choose another with make PYTHON=…"
)


@pytest.mark.parametrize(
    ("venv", "line"),
    [
        ("raise ModuleNotFoundError(\"No module named 'venv'\")", LACKS_VENV),
        ("print('ensurepip is not available.'); raise SystemExit(1)", LACKS_VENV),
        (
            "raise SystemExit('Error: No space left on device')",
            r"the disk is full: make room for \S+ and run it again",
        ),
        ("raise SystemExit('Error: Read-only file system')", r"\S+ is on a read-only disk: .*"),
    ],
)
def test_an_environment_that_cannot_be_made(checkout: Path, venv: str, line: str) -> None:
    (checkout / "venv.py").write_text(venv)
    done = make_environment(checkout, checkout / "venv", PYTHONPATH=str(checkout))
    assert re.fullmatch(line, line_of(done.stderr))
    assert done.returncode == 1


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder


def test_no_network_while_installing(checkout: Path, empty_environment: Path) -> None:
    done = make_environment(checkout, empty_environment, PIP_INDEX_URL=f"http://{NOWHERE}/simple")
    assert line_of(done.stderr) == (
        "no package can be downloaded: is this machine online?"
        " (HTTPS_PROXY names a proxy, PIP_INDEX_URL a mirror)"
    )


@pytest.mark.parametrize(
    ("file", "line"),
    [
        (
            "nobodys_package-1.0.tar.gz",  # source, for which a compiler is needed
            r"there is no wheel of nobodys-package==1\.0 for Python 3\.\d+ on \S+ \S+, and nothing is .*",
        ),
        (
            "nobodys_package-1.0-py3-none-any.whl",  # with another hash
            r"a package that was downloaded is not the one that tiny\.txt names: use another .*",
        ),
    ],
)
def test_an_unusable_package(checkout: Path, empty_environment: Path, file: str, line: str) -> None:
    (checkout / file).write_bytes(b"not a wheel")
    done = make_environment(checkout, empty_environment, wheels=checkout)
    assert re.fullmatch(line, line_of(done.stderr))


@pytest.fixture
def index(checkout: Path) -> Path:
    """The wheels of a small graph, and a complete lock of it."""
    (checkout / "requirements" / "tiny.in").write_text("top\nkit\n")
    index = checkout / "index"
    lock = make_wheel(index, "top", "base", "kit[inner]")
    lock += make_wheel(index, "kit", extra="inner")
    lock += make_wheel(index, "base") + make_wheel(index, "inner")
    (checkout / "requirements" / "tiny.txt").write_text(lock)
    make_wheel(index, "new")
    return index


INCOMPLETE = (
    ("base==.*\n", "", "lacks base, which top needs"),
    ("inner==.*\n", "", r"lacks inner, which kit(\[inner\])? needs"),
    ("top==.*\n", "", "lacks top, which tiny.in names"),
    (r"\Z", "new==1", "lacks the hash of new==1"),
    (r"\Z", f"new --hash=sha256:{'0' * 64}", "lacks the version of new"),
)


@pytest.mark.parametrize("was_complete", [False, True])
def test_an_incomplete_lock_fails_by_name(
    checkout: Path,
    index: Path,
    empty_environment: Path,
    was_complete: bool,
    subtests: pytest.Subtests,
) -> None:
    """An index offers the missing package, and the environment may have it from an earlier lock."""
    lock = checkout / "requirements" / "tiny.txt"
    complete = lock.read_text()
    if was_complete:
        done = make_environment(checkout, empty_environment, wheels=index)
        assert (done.returncode, done.stderr) == (0, ""), done
    for pin, instead, line in INCOMPLETE:
        lock.write_text(re.sub(f"(?m)^{pin}", instead, complete))
        if not was_complete:
            for installed in empty_environment.glob("lib/*/site-packages/*-1.dist-info"):
                shutil.rmtree(installed)  # nothing but this is installed of a package here
        for _ in range(2 if pin == "base==.*\n" else 1):  # the second run must fail too
            with subtests.test(line):
                done = make_environment(checkout, empty_environment, wheels=index)
                assert re.fullmatch(f"tiny.txt {line}: run make lock", line_of(done.stderr))
                assert done.returncode == 1


def test_packages_of_an_author_come_beside_those_of_the_lock(
    checkout: Path, index: Path, empty_environment: Path
) -> None:
    """An author's packages change none of ours, and are reinstalled only when their file changes."""
    for name, *needs in (("theirs", "base"), ("newer", "base>=2"), ("base",), ("deep", "newer")):
        make_wheel(index, name, *needs, version="2")
    theirs = checkout / "theirs.txt"

    def add(line: str) -> tuple[int, str, bool]:
        theirs.write_text(f"{line}\n")
        done = make_environment(checkout, empty_environment, also=theirs, wheels=index)
        return done.returncode, done.stderr, "packages of" in done.stdout

    assert [add("theirs"), add("theirs")] == [(0, "", True), (0, "", False)]
    python = empty_environment / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check"]
    found = json.loads(subprocess.check_output([*pip, "list", "--format=json"]))
    assert {"name": "base", "version": "1"} in found
    ours = "but Signoff has base==1: choose another version"
    for line, problem in (
        ("deep", f"newer 2 needs base>=2, {ours}"),
        ("base==2", f"{theirs} needs base==2, {ours}"),
        ("none", f"there is no none for Python 3.{sys.version_info[1]}, which {theirs} asks for"),
        ("not one", f"Invalid requirement: 'not one' (from line 1 of {theirs})"),
    ):
        assert add(line) == (1, f"AGENTS_REQUIREMENTS: {problem}\n", True)


def make_wheel(folder: Path, name: str, *needs: str, version: str = "1", extra: str = "") -> str:
    """Write a wheel into `folder` and return its line of a lock. An extra needs the package of that name."""
    about = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    about += [f"Requires-Dist: {need}" for need in needs]
    if extra:
        about += [f"Provides-Extra: {extra}", f"Requires-Dist: {extra}; extra == '{extra}'"]
    parts = {
        "METADATA": "\n".join([*about, ""]),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    info = f"{name}-{version}.dist-info"
    parts["RECORD"] = "".join(f"{info}/{part},,\n" for part in (*parts, "RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for part, text in parts.items():
            # ZipInfo has a fixed time, so the same wheel always has the same hash.
            archive.writestr(zipfile.ZipInfo(f"{info}/{part}"), text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
