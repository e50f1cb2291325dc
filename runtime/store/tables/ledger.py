"""The ledger: a file that records used approvals and decisions that were taken back.

It is outside the database, so restoring rows does not restore it. The MAC of each line covers the line and the MAC of
the line before, with a key that is not in Postgres. Lines are only added, under a lock of the file, and are on the
disk when `record` returns. A line that a crash cut off was not used yet, and the next line overwrites it.

SIGNOFF_LEDGER names the file; without it nothing is recorded. The processes of one machine share the file. Each
machine has its own.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path
from uuid import UUID

from django.conf import settings

from runtime.errors import KeyMissing, LedgerBroken, Tampered
from runtime.keyring import macs, purposes
from runtime.keyring.macs import Seal

log = logging.getLogger(__name__)

LABEL = "ledger"  # tells a line from an audit row under the same key

Spend = tuple[UUID, int]  # a gate, and the attempt that used its approval


class Ledger:
    """One ledger file, with the lines that this process has read and verified."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._facts: set[str] = set()
        self._read_to, self._head = 0, ""
        self._lock = threading.Lock()

    def facts(self) -> frozenset[str]:
        """Return all lines without their MACs. Raise LedgerBroken, KeyMissing, OSError."""
        with self._lock, self._opened() as file:
            self._catch_up(file)
            return frozenset(self._facts)

    def contains(self, fact: str) -> bool:
        """Say whether the file has this line. Raise as `facts` does."""
        with self._lock, self._opened() as file:
            self._catch_up(file)
            return fact in self._facts

    def add(self, fact: str) -> None:
        """Append a line and flush it to disk. Raise as `facts` does."""
        with self._lock, self._opened() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._catch_up(file)
            seal = macs.seal(purposes.AUDIT, LABEL, self._head, fact)
            file.truncate(self._read_to)
            file.seek(self._read_to)
            file.write(f"{fact} {seal.key_id} {seal.mac}\n".encode())
            file.flush()
            os.fsync(file.fileno())
            self._catch_up(file)

    @contextmanager
    def _opened(self) -> Iterator[BufferedRandom]:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            yield file

    def _catch_up(self, file: BufferedRandom) -> None:
        if os.fstat(file.fileno()).st_size < self._read_to:
            raise LedgerBroken(f"{self.path} was cut off")
        file.seek(self._read_to)
        for line in file:
            if not line.endswith(b"\n"):
                return
            self._read_line(line.decode(errors="replace").rstrip("\n"))
            self._read_to += len(line)

    def _read_line(self, line: str) -> None:
        fact, *seal = line.rsplit(" ", 2)
        if len(seal) != 2 or not macs.verify(
            purposes.AUDIT, Seal(key_id=seal[0], mac=seal[1]), LABEL, self._head, fact
        ):
            raise LedgerBroken(f"line {len(self._facts) + 1} of {self.path} does not verify")
        self._facts.add(fact)
        self._head = seal[1]


_open: dict[Path, Ledger] = {}


def ledger() -> Ledger | None:
    """Return the ledger of this process, None if it has none."""
    path: Path | None = settings.SIGNOFF_LEDGER
    return None if path is None else _open.setdefault(path, Ledger(path))


def spent(run: UUID, spend: Spend) -> str:
    """Return the line for an attempt that uses an approval."""
    gate, attempt = spend
    return f"spent {run} {gate} {attempt}"


def all_spent() -> list[tuple[UUID, Spend]]:
    """List every recorded attempt with its run; nothing without a ledger. Raise as `contains` does."""
    kept = ledger()
    found = [fact.split() for fact in kept.facts()] if kept is not None else []
    return [
        (UUID(words[1]), (UUID(words[2]), int(words[3]))) for words in found if words[0] == "spent"
    ]


def undone(approval_id: UUID, count: int) -> str:
    """Return the line for a request whose decision is taken back for the `count`th time."""
    return f"undone {approval_id} {count}"


def record(fact: str) -> None:
    """Append a line about a committed fact. An error is logged as critical and stops nothing."""
    kept = ledger()
    if kept is None:
        return
    try:
        kept.add(fact)
    except (OSError, LedgerBroken, KeyMissing) as problem:
        log.critical("Ledger: line not written: %s (%s)", fact, problem)


def contains(fact: str) -> bool:
    """Say whether the ledger has this line; False without a ledger. Raise LedgerBroken, KeyMissing, OSError."""
    kept = ledger()
    return kept is not None and kept.contains(fact)


def require_unspent(run: UUID, spends: Sequence[Spend]) -> None:
    """Raise Tampered if one of the attempts was made before, or LedgerBroken, KeyMissing, OSError."""
    for spend in spends:
        if contains(spent(run, spend)):
            raise Tampered(f"by the ledger, the approval at gate {spend[0]} was used before")
