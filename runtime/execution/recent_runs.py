"""Caches the long runs that this process released last, so that it reads and verifies their entries once.

When such a run is claimed, its rows are compared with the rows that this process verified or wrote: texts, positions,
MACs and key ids. If the first ones are the same, only the later ones are verified and read. Else all of them are.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from runtime.core.documents.conversations import Conversations
from runtime.store.tables.journal import Row

# Characters of stored entries. With the conversations read from them they take 4.4 times as much memory.
MAX_CHARACTERS = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEntries:
    """The first entries of a run, as rows that this process verified or wrote, and the conversations read from them."""

    rows: tuple[Row, ...] = ()
    conversations: Conversations = field(default_factory=Conversations)


@dataclass(frozen=True, slots=True)
class RecentRuns:
    """The cached runs by id, the one released last at the end. A run that is taken leaves the cache."""

    _runs: OrderedDict[UUID, tuple[KnownEntries, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, run: UUID, rows: Sequence[Row], conversations: Conversations) -> bool:
        """Keep these entries, if they were read, and drop the oldest runs until there is room.

        Return whether they were read.
        """
        if not 0 < conversations.position <= len(rows):
            return False
        entries = KnownEntries(rows=tuple(rows), conversations=conversations)
        with self._lock:
            self._runs[run] = entries, sum(len(body) for _, body, *_ in rows)
            self._runs.move_to_end(run)
            while sum(size for _, size in self._runs.values()) > MAX_CHARACTERS:
                self._runs.popitem(last=False)
        return True

    def pop(self, run: UUID, rows: tuple[Row, ...]) -> KnownEntries:
        """Return the cached entries if the run's rows begin with them, else none."""
        with self._lock:
            entries, _ = self._runs.pop(run, (KnownEntries(), 0))
        return entries if rows[: len(entries.rows)] == entries.rows else KnownEntries()
