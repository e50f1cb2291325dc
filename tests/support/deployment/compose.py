"""docker-compose.yml as Compose itself reads it, and the image as the Dockerfile says it is made, without an engine."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from config.env.environment import ROOT
from tests.support import commands

BIN = Path(sys.executable).parent
PYTHON = "python"  # as commands in the image name it


@cache
def resolved(
    *settings: tuple[str, str], folder: Path = ROOT, override: Path | None = None
) -> dict[str, Any]:
    """Return the output of `docker compose config` in this folder, with these variables set and no .env.

    `override` is a file that is read over it.
    """
    files = [ROOT / "docker-compose.yml", *([override] if override else [])]
    done = commands.run(
        BIN / "docker-compose",
        *(word for file in files for word in ("--file", file)),
        *("--project-directory", folder),
        *("--env-file", os.devnull, "config", "--format", "json"),
        env={"PATH": os.environ["PATH"], **dict(settings)},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return dict(json.loads(done.stdout))


def unescaped(text: str) -> str:
    """`config` writes $ as $$, so that its output can be read again."""
    return text.replace("$$", "$")


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (instruction, rest), continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def environment() -> dict[str, str]:
    """Return the variables that the ENV instructions of the last stage set."""
    last = [index for index, (name, _) in enumerate(instructions()) if name == "FROM"][-1]
    pairs = [rest.split() for name, rest in instructions()[last:] if name == "ENV"]
    return dict(pair.split("=", 1) for part in pairs for pair in part)


def build(folder: Path) -> None:
    """Copy the image's working folder without static files into `folder`."""
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            if target.startswith("/"):
                continue  # the lock and its installer, for the stage that makes the environment
            (source,) = sources
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, folder / target, ignore=_kept_out)
            else:
                shutil.copy(ROOT / source, folder / target)


def missing_packages() -> set[str]:
    """Modules that the developers' environment has and the image has not."""
    servers = _names("embedded") - _names("runtime")
    return {name.replace("-", "_") for name in servers}


def without(modules: set[str], folder: Path) -> Mapping[str, str]:
    """Variables for a process of this environment in which those modules cannot be imported."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {sorted(modules)!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r} in the image', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    return {"PYTHONPATH": str(folder)}


def _names(lock: str) -> set[str]:
    lines = (ROOT / "requirements" / f"{lock}.txt").read_text().splitlines()
    return {line.partition("==")[0] for line in lines if "==" in line and not line.startswith(" ")}


def _kept_out(folder: str, names: list[str]) -> set[str]:
    """Return the names in an included folder that .dockerignore excludes."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
    patterns = [line for line in lines if line[0] not in "#!*" or line.startswith("**/")]
    place = Path(folder).relative_to(ROOT)
    return {
        name
        for name in names
        for pattern in patterns
        if fnmatch(name, pattern.removeprefix("**/")) or str(place / name) == pattern
    }
