"""One thread per worker process that renews all its leases every second, on a connection of its own.

It tells each run's coordinator when a signal arrived, when the lease is lost, and when the local
lease budget allows effects again after Postgres was out of reach.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import psycopg

from runtime import database, leases, workers
from runtime.leases import Claim

log = logging.getLogger(__name__)

STATEMENT = f"WITH beat AS ({workers.BEAT}) {leases.RENEW}"

BEAT_SECONDS = 1.0
MARGIN = 0.1  # of a lease


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """One claimed run of this process. `wake` is called from the heartbeat's thread on news."""

    claim: Claim
    wake: Callable[[], None]
    renewed_at: float = field(default_factory=time.monotonic)
    mailbox: int | None = None
    lost: threading.Event = field(default_factory=threading.Event)
    starved: bool = False

    def has_budget(self) -> bool:
        """Whether the lease surely lasts a moment longer, judged by this process's own clock.

        After a no the next renewal wakes whoever asked.
        """
        spent = time.monotonic() - self.renewed_at
        self.starved = self.lost.is_set() or spent > leases.lease_seconds() * (1 - MARGIN)
        return not self.starved


class Heartbeat:
    """The leases of this process. Start it once, after fork."""

    def __init__(self) -> None:
        self._held: dict[UUID, Held] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._worker = {"worker": uuid4(), "host": socket.gethostname(), "process": os.getpid()}

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def holding(self, claim: Claim, wake: Callable[[], None]) -> Iterator[Held]:
        """Renew the claim's lease for as long as the block lasts."""
        held = Held(claim=claim, wake=wake)
        with self._lock:
            self._held[claim.run] = held
        try:
            yield held
        finally:
            with self._lock:
                if self._held.get(claim.run) is held:
                    del self._held[claim.run]

    def poke(self, run: UUID) -> None:
        """Somebody hinted at a run that this process holds: have its coordinator look at the mailbox."""
        with self._lock:
            held = self._held.get(run)
        if held is not None:
            held.mailbox = None
            held.wake()

    def _run(self) -> None:
        connection: database.Connection | None = None
        while not self._stop.wait(min(BEAT_SECONDS, leases.lease_seconds() / 4)):
            try:
                if connection is None or connection.closed:
                    connection = database.own()
                self._beat(connection)
            except psycopg.Error as exc:
                log.warning("heartbeat missed: %s", exc)
                if connection is not None:
                    connection.close()
        if connection is not None:
            connection.close()

    def _beat(self, connection: database.Connection) -> None:
        with self._lock:
            held = dict(self._held)
        sent = time.monotonic()
        mailboxes = self._renew(connection, held)
        for run, one in held.items():
            if run not in mailboxes:
                one.lost.set()
                one.wake()
                continue
            one.renewed_at = sent
            if mailboxes[run] != one.mailbox or one.starved:
                one.mailbox = mailboxes[run]
                one.wake()

    def _renew(self, connection: database.Connection, held: dict[UUID, Held]) -> dict[UUID, int]:
        """Renew every lease and say that this process is alive. Returns the mailboxes of the runs still held."""
        rows = connection.execute(
            STATEMENT,
            {
                "runs": list(held),
                "owners": [one.claim.owner for one in held.values()],
                "lease": leases.lease_seconds(),
                **self._worker,
            },
            prepare=True,
        )
        return dict(rows.fetchall())
