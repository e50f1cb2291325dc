"""The ledger: a file that says which approvals were used up and which decisions were taken back.

It is outside the database, so a person who puts rows back does not put it back. Each line has a MAC that covers it and
the MAC of the line before, under a key that Postgres has not. Lines are only added, under a lock of the file, and are
on the disk when `note` returns. A line that a crash cut off was never relied on, and makes room for the next.

ABEYANCE_LEDGER names the file; without it nothing is noted. The processes of one machine share it. Machines do not:
each knows what happened on it.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path
from uuid import UUID

from django.conf import settings

from runtime import keyring
from runtime.errors import KeyMissing, LedgerBroken, Tampered
from runtime.keyring import Seal

log = logging.getLogger(__name__)

LABEL = "ledger"  # tells a line from an audit row under the same key

Spend = tuple[UUID, int]  # a gate, and the attempt that its approval was used for


class Ledger:
    """One file as far as this process has read and verified it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._facts: set[str] = set()
        self._read_to, self._head = 0, ""
        self._lock = threading.Lock()

    def facts(self) -> frozenset[str]:
        """Every line without its MAC. Raises LedgerBroken, KeyMissing, OSError."""
        with self._lock, self._opened() as file:
            self._catch_up(file)
            return frozenset(self._facts)

    def holds(self, fact: str) -> bool:
        """Whether there is this line. Raises as `facts` does."""
        with self._lock, self._opened() as file:
            self._catch_up(file)
            return fact in self._facts

    def add(self, fact: str) -> None:
        """Raises as `facts` does."""
        with self._lock, self._opened() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._catch_up(file)
            seal = keyring.seal(keyring.AUDIT, LABEL, self._head, fact)
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
            self._take(line.decode(errors="replace").rstrip("\n"))
            self._read_to += len(line)

    def _take(self, line: str) -> None:
        fact, *seal = line.rsplit(" ", 2)
        if len(seal) != 2 or not keyring.verify(
            keyring.AUDIT, Seal(key_id=seal[0], mac=seal[1]), LABEL, self._head, fact
        ):
            raise LedgerBroken(f"line {len(self._facts) + 1} of {self.path} does not verify")
        self._facts.add(fact)
        self._head = seal[1]


_open: dict[Path, Ledger] = {}


def ledger() -> Ledger | None:
    """That of this process, None if it keeps none."""
    path: Path | None = settings.ABEYANCE_LEDGER
    return None if path is None else _open.setdefault(path, Ledger(path))


def spent(run: UUID, spend: Spend) -> str:
    """The line about an attempt that an approval was used for."""
    gate, attempt = spend
    return f"spent {run} {gate} {attempt}"


def all_spent() -> list[tuple[UUID, Spend]]:
    """Every attempt there is a line about, and its run; nothing without a ledger. Raises as `holds` does."""
    kept = ledger()
    found = [fact.split() for fact in kept.facts()] if kept is not None else []
    return [
        (UUID(words[1]), (UUID(words[2]), int(words[3]))) for words in found if words[0] == "spent"
    ]


def undone(request: UUID, count: int) -> str:
    """The line about the decision on a request that was the `count`th to be taken back."""
    return f"undone {request} {count}"


def note(fact: str) -> None:
    """Add a line about what is committed already; what goes wrong is an alarm and no reason to stop."""
    kept = ledger()
    if kept is None:
        return
    try:
        kept.add(fact)
    except (OSError, LedgerBroken, KeyMissing) as problem:
        log.critical("not noted in the ledger: %s (%s)", fact, problem)


def holds(fact: str) -> bool:
    """Whether the ledger has this line; False without one. Raises LedgerBroken, KeyMissing, OSError."""
    kept = ledger()
    return kept is not None and kept.holds(fact)


def require_unspent(run: UUID, spends: list[Spend]) -> None:
    """Raise Tampered if one of the attempts was made before. Raises LedgerBroken, KeyMissing, OSError."""
    for spend in spends:
        if holds(spent(run, spend)):
            raise Tampered(f"the approval at gate {spend[0]} was used before, says the ledger")
