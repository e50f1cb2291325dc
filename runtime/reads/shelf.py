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
class _Kept(Generic[T]):
    value: T
    size: int
    at: float


class Shelf(Generic[T]):
    """Values by key, together of at most `most` in size. Those that no page took for long go first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[Hashable, _Kept[T]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> T | None:
        """Take a value off the shelf; None if it is not there, or another page has it."""
        with self._lock:
            kept = self._kept.pop(key, None)
        return kept.value if kept and kept.at + MAX_SECONDS > monotonic() else None

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Put a value on the shelf, and remove others that are too many or too old."""
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = _Kept(value=value, size=size, at=monotonic())
            total = sum(kept.size for kept in self._kept.values())
            while self._kept:
                oldest = next(iter(self._kept.values()))
                if total <= self.most and oldest.at + MAX_SECONDS > monotonic():
                    return
                total -= oldest.size
                self._kept.popitem(last=False)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._kept.clear()
