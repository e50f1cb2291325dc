"""`make up RELOAD=1`: when a file of the agents' folder changes, new workers take the place of those that run."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

SECONDS = 1.0  # between two looks
WITHOUT_AGENTS = ("web", "sweeper")  # processes that load none


class Reload:
    """Looks for changes since the last look. `load` loads the agents once and says what is wrong with them.

    `replace` has the workers end in their own time and starts others; with a mistake the old ones go on.
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
        self._seen = _files(folder)

    def look(self) -> None:
        found = _files(self._folder)
        changed = _changed(self._seen, found)
        self._seen = found
        if not changed:
            return
        if problem := self._load():
            self._say(f"Not reloaded: {problem}")
            return
        self._say(f"Reloading, because {changed} has changed")
        self._replace()


def _changed(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> str:
    """The first file that differs, empty if none does."""
    differing = {path for path, _ in before.items() ^ after.items()}
    return min(differing, default="")


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """When each file of Python in the folder was changed last, and its size."""
    found = {}
    for path in _python(folder):
        try:
            stat = path.stat()
        except OSError:  # removed since it was listed
            continue
        found[str(path)] = (stat.st_mtime_ns, stat.st_size)
    return found


def _python(folder: Path) -> Iterator[Path]:
    """Hidden folders are left out: an environment or a repository has thousands of files."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        yield from (Path(place, name) for name in files if name.endswith(".py"))
