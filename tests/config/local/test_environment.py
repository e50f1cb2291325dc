"""A failed installation of packages prints one line that says what to do."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from config.env.environment import ROOT
from tests.config.disks import disk
from tests.config.installation.packages import describe, make_wheel
from tests.config.lines import line_of

LOCKS = ("runtime", "embedded", "dev")
ENVIRONMENT = ROOT / "requirements" / "environment.py"
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with one lock, of one package that no index here has."""
    folder = tmp_path / "requirements"
    folder.mkdir()
    shutil.copy(ENVIRONMENT, folder)
    (folder / "tiny.in").write_text("nobodys-package\n")
    (folder / "tiny.txt").write_text(f"nobodys-package==1.0 --hash=sha256:{'0' * 64}\n")
    return tmp_path


def make_environment(
    checkout: Path,
    folder: Path,
    *before: str,
    locks: tuple[str, ...] = ("tiny",),
    wheels: tuple[Path, ...] = (),
    also: Path | None = None,
    **variables: str,
) -> "subprocess.CompletedProcess[str]":
    """Run `environment.py` as the Makefile does, `before` first in the same interpreter.

    With `wheels`, folders, these are the only index.
    """
    if wheels:
        folders = " ".join(str(one) for one in wheels)
        variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folders}
    script = str(checkout / "requirements" / "environment.py")
    arguments = [script, *(["--also", str(also)] if also else []), str(folder), *locks]
    code = ";".join(
        [
            *("import runpy, sys", *before),
            f"sys.argv[:] = {arguments!r}",
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
    """Return an environment that contains only pip."""
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
            (
                r"there is no wheel of nobodys-package==1\.0 for Python 3\.\d+ on \S+ \S+, and nothing is"
                r" compiled here: choose another Python with make PYTHON=…"
            ),
        ),
        (
            "nobodys_package-1.0-py3-none-any.whl",  # with another hash
            (
                r"a package that was downloaded is not the one that tiny\.txt names:"
                r" use another mirror or network"
            ),
        ),
    ],
)
def test_a_package_that_cannot_be_used(
    checkout: Path, empty_environment: Path, file: str, line: str
) -> None:
    packages = checkout / "packages"
    packages.mkdir()
    (packages / file).write_bytes(b"not a wheel")
    done = make_environment(checkout, empty_environment, wheels=(packages,))
    assert re.fullmatch(line, line_of(done.stderr))


def installed(folder: Path) -> dict[str, str]:
    """Return the versions of the packages of an environment, by normalized name."""
    command = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    found = json.loads(subprocess.check_output([*command, "list", "--format=json"]))
    versions = {canonicalize_name(one["name"]): one["version"] for one in found}
    return {name: versions[name] for name in versions if name not in {"pip", "setuptools"}}


def requirements_of(name: str) -> list[Requirement]:
    """Return the requirements that a file below requirements/ lists and that count here."""
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    listed = [Requirement(line.rstrip(" \\")) for line in lines if re.match(r"\w", line)]
    return [one for one in listed if one.marker is None or one.marker.evaluate()]


def test_newer_releases_change_nothing(checkout: Path) -> None:
    """The wheels have the metadata of the real packages; beside them lie newer ones."""
    versions, roots = {}, []
    for lock in LOCKS:
        roots += requirements_of(f"{lock}.in")
        shutil.copy(ROOT / "requirements" / f"{lock}.in", checkout / "requirements")
        lines = ""
        for pin in requirements_of(f"{lock}.txt"):
            version = versions[canonicalize_name(pin.name)] = metadata.version(pin.name)
            text = metadata.distribution(pin.name).read_text("METADATA") or ""
            lines += make_wheel(checkout / "index", pin.name, version, text)
        (checkout / "requirements" / f"{lock}.txt").write_text(lines)
    needs = [Requirement(need) for name in versions for need in metadata.requires(name) or ()]
    named_with_extra = {canonicalize_name(one.name) for one in (*roots, *needs) if one.extras}
    assert "pydantic" in named_with_extra
    plain = min(versions.keys() - named_with_extra)
    for name in (*named_with_extra & versions.keys(), plain):
        make_wheel(checkout / "beside", name, "9999")
    done = make_environment(
        checkout, checkout / "venv", locks=LOCKS, wheels=(checkout / "index", checkout / "beside")
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert installed(checkout / "venv") == versions


@pytest.fixture
def index(checkout: Path) -> Path:
    """The wheels of a small graph, and a complete lock of it."""
    (checkout / "requirements" / "tiny.in").write_text("top\nkit\n")
    index = checkout / "index"
    lock = make_wheel(index, "top", "1", describe("top", "1", needs=("base", "kit[inner]")))
    lock += make_wheel(index, "kit", "1", describe("kit", "1", extras=("inner",)))
    for name in ("base", "inner"):
        lock += make_wheel(index, name, "1")
    (checkout / "requirements" / "tiny.txt").write_text(lock)
    return index


@pytest.mark.parametrize(
    ("package", "line", "was_complete"),
    [
        ("base", "lacks base, which top needs", False),
        ("inner", "lacks inner, which kit[inner] needs", False),
        ("top", "lacks top, which tiny.in names", False),
        ("base", "lacks base, which top needs", True),
        ("top", "lacks top, which tiny.in names", True),
    ],
)
def test_an_incomplete_lock_fails_by_name(
    checkout: Path,
    index: Path,
    empty_environment: Path,
    package: str,
    line: str,
    was_complete: bool,
) -> None:
    """An index offers the missing package, and the environment may have it from an earlier lock."""
    lock = checkout / "requirements" / "tiny.txt"
    if was_complete:
        done = make_environment(checkout, empty_environment, wheels=(index,))
        assert (done.returncode, done.stderr) == (0, ""), done
    else:
        pip = [str(empty_environment / "bin" / "python"), "-m", "pip", "--quiet"]
        subprocess.run([*pip, "uninstall", "--yes", "top", "kit", "base", "inner"], check=True)
    lock.write_text(re.sub(f"(?m)^{package}==.*\n", "", lock.read_text()))
    for _ in range(2):  # the second run must fail too
        done = make_environment(checkout, empty_environment, wheels=(index,))
        assert line_of(done.stderr) == f"tiny.txt {line}: run make lock"
        assert done.returncode == 1


def test_packages_of_an_author_come_beside_those_of_the_lock(
    checkout: Path, index: Path, empty_environment: Path
) -> None:
    """An author's packages change none of ours, and are reinstalled only when their file changes."""
    for name, need in (("theirs", "base"), ("newer", "base>=2"), ("base", ""), ("deep", "newer")):
        needs = (need,) if need else ()
        make_wheel(index, name, "2", describe(name, "2", needs=needs))
    theirs = checkout / "theirs.txt"

    def add(line: str) -> tuple[int, str, bool]:
        theirs.write_text(f"{line}\n")
        done = make_environment(checkout, empty_environment, wheels=(index,), also=theirs)
        return done.returncode, done.stderr, "packages of" in done.stdout

    assert [add("theirs"), add("theirs")] == [(0, "", True), (0, "", False)]
    assert installed(empty_environment)["base"] == "1"
    ours, python = "but Abeyance has base==1: choose another version", f"{sys.version_info[1]}"
    for line, problem in (
        ("deep", f"newer 2 needs base>=2, {ours}"),
        ("base==2", f"{theirs} needs base==2, {ours}"),
        ("none", f"there is no none for Python 3.{python}, which {theirs} asks for"),
        ("not one", f"Invalid requirement: 'not one' (from line 1 of {theirs})"),
    ):
        assert add(line) == (1, f"AGENTS_REQUIREMENTS: {problem}\n", True)


@pytest.mark.parametrize(
    ("pin", "line"),
    [
        ("new==1", "lacks the hash of new==1"),
        (f"new --hash=sha256:{'0' * 64}", "lacks the version of new"),
    ],
)
def test_a_pin_without_hash_or_version_fails_by_name(
    checkout: Path, index: Path, empty_environment: Path, pin: str, line: str
) -> None:
    make_wheel(index, "new", "1")
    with (checkout / "requirements" / "tiny.txt").open("a") as lock:
        lock.write(pin)
    done = make_environment(checkout, empty_environment, wheels=(index,))
    assert line_of(done.stderr) == f"tiny.txt {line}: run make lock"


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
        if place is None:  # without the right to mount: raise venv's error
            said = {False: os.strerror(errno.ENOSPC), True: os.strerror(errno.EROFS)}[read_only]
            shadow = checkout / "shadow"
            shadow.mkdir()
            (shadow / "venv.py").write_text(f"raise SystemExit('Error: {said}')")
            folder, python_path = tmp_path / "venv", str(shadow)
        else:
            folder, python_path = place / "venv", ""
        done = make_environment(checkout, folder, PYTHONPATH=python_path)
    assert re.fullmatch(line.format(folder=re.escape(str(folder))), line_of(done.stderr))
