"""`make up RELOAD=1`: replaces the workers when a file in the agents' folder changes."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

RELOAD_SECONDS = 1.0  # between two checks
WITHOUT_AGENTS = ("web", "sweeper")  # processes that load no agents


class Reload:
    """Looks for changed files. `load` loads the agents once and returns their mistakes as a text.

    `replace` drains the workers and starts new ones. If there is a mistake, the old workers keep running.
    """

    def __init__(
        self,
        folder: Path,
        *,
        load: Callable[[], str],
        replace: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._load = load
        self._replace = replace
        self._say = say
        self._fingerprints = _files(folder)

    def check(self) -> None:
        """Replace the workers if a file has changed and the agents load."""
        fingerprints = _files(self._folder)
        changed = _changed(self._fingerprints, fingerprints)
        self._fingerprints = fingerprints
        if not changed:
            return
        if problem := self._load():
            self._say(f"Not reloaded: {problem}")
            return
        self._say(f"Reloading, because {changed} has changed")
        self._replace()


def _changed(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> str:
    """Return the first file that differs, empty if none does."""
    differing = {path for path, _ in before.items() ^ after.items()}
    return min(differing, default="")


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the time of the last change and the size of each Python file in the folder."""
    fingerprints = {}
    for path in _python(folder):
        try:
            stat = path.stat()
        except OSError:  # removed since it was listed
            continue
        fingerprints[str(path)] = (stat.st_mtime_ns, stat.st_size)
    return fingerprints


def _python(folder: Path) -> Iterator[Path]:
    """Find Python files. Hidden folders are skipped: an environment or a repository has thousands of files."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        yield from (Path(parent, name) for name in files if name.endswith(".py"))
