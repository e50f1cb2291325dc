"""A ledger of effects outside the application: a line in it is what "the effect happened" means here.

Tools append `key attempt process time` and wait until the line is on disk. A transactional tool has
its effect in the database instead: a row, which is there if and only if its transaction committed.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

PATH = "SIGNOFF_FAULTS_LEDGER"
STAY = "SIGNOFF_FAULTS_STAY"
ROW = "the effect of a transactional tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One time that something happened outside."""

    key: str
    attempt: int
    process: int


def note(key: str, attempt: int) -> None:
    """Have the effect: one line, on disk when this returns."""
    line = f"{key} {attempt} {os.getpid()} {time.time():.6f}\n"
    file = os.open(os.environ[PATH], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, line.encode())
        os.fsync(file)
    finally:
        os.close(file)


def note_row(key: str, attempt: int) -> None:
    """Perform the effect of a transactional tool: a row in a table that workers can write.

    Every start adds one of its own.
    """
    from runtime.models import ExternalEvent

    row = f"{key} {attempt} {uuid4().hex[:8]}"
    ExternalEvent.objects.create(id=row, name=ROW, digest="", waits=0, sent_by="")


def first_time(token: str) -> bool:
    """Tell whether this token is new in every process."""
    try:
        os.close(os.open(f"{os.environ[PATH]}.{token}", os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        return False
    return True


def mark(path: Path, token: str) -> None:
    """Tell tools of something, in every process: `is_marked` is true from now on."""
    Path(f"{path}.{token}").touch()


def is_marked(token: str) -> bool:
    return Path(f"{os.environ[PATH]}.{token}").exists()


def stays() -> bool:
    """Tell whether endless calls continue in this process."""
    return os.environ.get(STAY) is not None


def read(path: Path) -> list[Effect]:
    """Every line so far, oldest first."""
    if not path.exists():
        return []
    rows = (line.split() for line in path.read_text().splitlines())
    return [Effect(key=key, attempt=int(n), process=int(pid)) for key, n, pid, _ in rows]


def happened(path: Path, key: str) -> bool:
    return path.exists() and f"{key} ".encode() in path.read_bytes()


def by_run(path: Path) -> Mapping[str, list[Effect]]:
    """Every line so far, by the run that it is of."""
    found: defaultdict[str, list[Effect]] = defaultdict(list)
    for effect in read(path):
        found[effect.key.partition("/")[0]].append(effect)
    return found


def effects_of(lines: Iterable[Effect], run: UUID) -> list[Effect]:
    """Everything that a run did to the outside: its lines, and the rows of transactional tools."""
    from runtime.models import ExternalEvent

    found = ExternalEvent.objects.filter(name=ROW, id__startswith=f"{run}/")
    names = found.values_list("id", flat=True)
    rows = (name.split() for name in names)
    return [*lines, *(Effect(key=key, attempt=int(n), process=0) for key, n, _ in rows)]
