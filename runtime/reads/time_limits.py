"""Limits the time of a page: after one second it omits optional parts and says so; after ten it is aborted.

Expensive queries check the limits here. Code outside a page has no limit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

SOFT_SECONDS = 1.0  # after this, comparisons, searches and outcomes are omitted
HARD_SECONDS = 10.0  # after this, the page is aborted; a running statement has its own timeout

_began: ContextVar[float | None] = ContextVar("page_began", default=None)
_is_bounded: ContextVar[bool] = ContextVar("page_is_bounded", default=False)


class TooLong(Exception):
    """The page took too long to make."""


@contextmanager
def limit_page_time(*, bounded: bool) -> Iterator[None]:
    """Start the clock. Only a `bounded` page is aborted; a request that changes data must finish."""
    began, is_bounded = _began.set(monotonic()), _is_bounded.set(bounded)
    try:
        yield
    finally:
        _began.reset(began)
        _is_bounded.reset(is_bounded)


def compute_soft_end() -> float | None:
    """Return the `time.monotonic()` at which the page begins to leave parts out; None outside a page."""
    began = _began.get()
    return None if began is None else began + SOFT_SECONDS


def is_used_up() -> bool:
    """Tell whether the page omits optional parts."""
    end = compute_soft_end()
    return end is not None and monotonic() >= end


def check() -> None:
    """Raise TooLong if the page's time is over."""
    began = _began.get()
    if began is not None and _is_bounded.get() and monotonic() >= began + HARD_SECONDS:
        raise TooLong
