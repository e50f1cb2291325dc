"""Used approvals: one row for each attempt that used an approval, and a ledger outside the database.

The step that records the intent of an attempt adds its row. If the run is restored to an earlier state, the primary key
refuses the same attempt under the same gate, and the run is parked. Web and workers may add rows but not change or
delete them. The ledger guards against the owner of the table.

The ledger is a file that also records decisions that were taken back. It is outside the database, so restoring rows
does not restore it. The MAC of each line covers the line and the MAC of the line before, with a key that is not in
Postgres. Lines are only added, under a lock of the file, and are on the disk when `record_fact` returns. A line that a
crash cut off was not used yet, and the next line overwrites it.

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
from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Seal
from runtime.store import pool
from runtime.store.pool import Connection

log = logging.getLogger(__name__)

LABEL = "ledger"  # tells a line from an audit row under the same key

Spend = tuple[UUID, int]  # a gate, and the attempt that used its approval
CONSTRAINT = "runtime_usedapproval_pkey"

# The part of the step statement.
SPEND = """
    INSERT INTO runtime_usedapproval (gate, attempt, run_id)
    SELECT s.gate, s.attempt, run.id
    FROM run, unnest(%(s_gates)s::uuid[], %(s_attempts)s::int[]) AS s(gate, attempt)
"""


class Ledger:
    """One ledger file, with the lines that this process has read and verified."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._facts: set[str] = set()
        self._read_to, self._head = 0, ""
        self._lock = threading.Lock()

    def read_facts(self) -> frozenset[str]:
        """Return all lines without their MACs. Raise LedgerBroken, KeyMissing, OSError."""
        with self._lock, self._open_file() as file:
            self._catch_up(file)
            return frozenset(self._facts)

    def has_fact(self, fact: str) -> bool:
        """Say whether the file has this line. Raise as `facts` does."""
        with self._lock, self._open_file() as file:
            self._catch_up(file)
            return fact in self._facts

    def add(self, fact: str) -> None:
        """Append a line and flush it to disk. Raise as `facts` does."""
        with self._lock, self._open_file() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._catch_up(file)
            seal = signatures.seal(purposes.AUDIT, LABEL, self._head, fact)
            # What follows is a line that a crash cut off: `add` has not returned for it, so nothing relies on it.
            file.truncate(self._read_to)
            file.seek(self._read_to)
            file.write(f"{fact} {seal.key_id} {seal.mac}\n".encode())
            file.flush()
            os.fsync(file.fileno())
            self._catch_up(file)

    @contextmanager
    def _open_file(self) -> Iterator[BufferedRandom]:
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
            fact, *seal = line.decode(errors="replace").rstrip("\n").rsplit(" ", 2)
            if len(seal) != 2 or not signatures.verify(
                purposes.AUDIT, Seal(key_id=seal[0], mac=seal[1]), LABEL, self._head, fact
            ):
                raise LedgerBroken(f"line {len(self._facts) + 1} of {self.path} does not verify")
            self._facts.add(fact)
            self._head = seal[1]
            self._read_to += len(line)


_open: dict[Path, Ledger] = {}


def open_ledger() -> Ledger | None:
    """Return the ledger of this process, None if it has none."""
    path: Path | None = settings.SIGNOFF_LEDGER
    return None if path is None else _open.setdefault(path, Ledger(path))


def format_spent_line(run: UUID, spend: Spend) -> str:
    """Return the line for an attempt that uses an approval."""
    gate, attempt = spend
    return f"spent {run} {gate} {attempt}"


def list_spent() -> list[tuple[UUID, Spend]]:
    """List every recorded attempt with its run; nothing without a ledger. Raise as `has_fact` does."""
    file = open_ledger()
    lines = [fact.split() for fact in file.read_facts()] if file is not None else []
    return [
        (UUID(words[1]), (UUID(words[2]), int(words[3]))) for words in lines if words[0] == "spent"
    ]


def format_undone_line(approval_id: UUID, count: int) -> str:
    """Return the line for a request whose decision is taken back for the `count`th time."""
    return f"undone {approval_id} {count}"


def record_fact(fact: str) -> None:
    """Append a line about a committed fact. An error is logged as critical and stops nothing."""
    file = open_ledger()
    if file is None:
        return
    try:
        file.add(fact)
    except (OSError, LedgerBroken, KeyMissing) as problem:
        log.critical("Ledger: line not written: %s (%s)", fact, problem)


def has_fact(fact: str) -> bool:
    """Say whether the ledger has this line; False without a ledger. Raise LedgerBroken, KeyMissing, OSError."""
    file = open_ledger()
    return file is not None and file.has_fact(fact)


def require_unspent(run: UUID, spends: Sequence[Spend]) -> None:
    """Raise Tampered if one of the attempts was made before, or LedgerBroken, KeyMissing, OSError."""
    for spend in spends:
        if has_fact(format_spent_line(run, spend)):
            raise Tampered(f"by the ledger, the approval at gate {spend[0]} was used before")


def add(connection: Connection, run: UUID, gate: UUID) -> bool:
    """Write the use of an approval by an instance, which is attempt 0. Return False if there is one."""
    row = {"gate": gate, "attempt": 0, "run_id": run}
    return pool.insert(connection, "runtime_usedapproval", row)


def build_spend_parameters(spends: tuple[Spend, ...]) -> dict[str, object]:
    """Return the parameters of the part."""
    return {
        "s_gates": pool.array([gate for gate, _ in spends]),
        "s_attempts": pool.array([attempt for _, attempt in spends]),
    }


def list_missing_attempts(connection: Connection, run: UUID | None = None) -> list[str]:
    """List the attempts in the ledger that the table lacks, of this run or of all; none without a ledger.

    A line is written after its row was committed, so call this outside a transaction. Raise LedgerBroken, KeyMissing,
    OSError.
    """
    noted = [spend for owner, spend in list_spent() if run in (None, owner)]
    rows = connection.execute(
        """
        SELECT gate, attempt FROM unnest(%(s_gates)s::uuid[], %(s_attempts)s::int[]) AS noted(gate, attempt)
        WHERE NOT EXISTS (SELECT FROM runtime_usedapproval AS s
            WHERE s.gate = noted.gate AND s.attempt = noted.attempt)
        """,
        build_spend_parameters(tuple(noted)),
    )
    return [f"attempt {attempt} under the approval at gate {gate}" for gate, attempt in rows]
