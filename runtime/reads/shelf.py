"""Keeps values between the pages of one process, each lent to one page at a time, so no two threads change it."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_SECONDS = 600.0  # without a page


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShelfEntry(Generic[T]):
    value: T
    size: int
    at: float


class Shelf(Generic[T]):
    """Values by key, together of at most `limit` in size. Those that no page took for long go first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, _ShelfEntry[T]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> T | None:
        """Take a value off the shelf; None if it is not there, or another page has it."""
        with self._lock:
            entry = self._entries.pop(key, None)
        return entry.value if entry and entry.at + MAX_SECONDS > monotonic() else None

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Put a value on the shelf, and remove others that are too many or too old."""
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = _ShelfEntry(value=value, size=size, at=monotonic())
            total = sum(entry.size for entry in self._entries.values())
            while self._entries:
                oldest = next(iter(self._entries.values()))
                if total <= self.limit and oldest.at + MAX_SECONDS > monotonic():
                    return
                total -= oldest.size
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._entries.clear()
