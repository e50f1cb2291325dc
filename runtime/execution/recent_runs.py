"""Caches the long runs that this process released last, so that it reads their entries once.

Every entry's MAC is verified again when such a run is claimed. If the entries are the same texts as before, their
conversations are too; new entries are read.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from uuid import UUID

from runtime.core.documents.conversations import Conversations

# Characters of stored entries. With the conversations read from them they take 4.4 times as much memory.
MAX_CHARACTERS = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    texts: list[str]
    conversations: Conversations
    size: int


@dataclass(frozen=True, slots=True)
class RecentRuns:
    """The cached runs by id, the one released last at the end. A run that is taken leaves the cache."""

    _runs: OrderedDict[UUID, _Read] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, run: UUID, texts: list[str], conversations: Conversations) -> bool:
        """Keep the conversations of these entries, if they were read, and drop the oldest runs until there is room.

        Return whether they were read.
        """
        if not 0 < conversations.position <= len(texts):
            return False
        with self._lock:
            self._runs[run] = _Read(
                texts=texts, conversations=conversations, size=sum(map(len, texts))
            )
            self._runs.move_to_end(run)
            while sum(one.size for one in self._runs.values()) > MAX_CHARACTERS:
                self._runs.popitem(last=False)
        return True

    def pop(self, run: UUID, texts: list[str]) -> Conversations:
        """Return the cached conversations if the run's entries begin as they did then, else empty ones."""
        with self._lock:
            found = self._runs.pop(run, None)
        if found is None or texts[: len(found.texts)] != found.texts:
            return Conversations()
        return found.conversations
