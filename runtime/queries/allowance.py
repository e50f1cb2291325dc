"""How long a page may work: after a while it leaves out what it can and says so, in the end it is given up.

What is expensive asks here. Outside a page nothing is limited.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

SOFT_SECONDS = 1.0  # after which comparisons, searches and outcomes are left out
HARD_SECONDS = (
    10.0  # after which the page is given up; the statement of that moment has its own timeout
)

_began: ContextVar[float | None] = ContextVar("page_began", default=None)
_is_bounded: ContextVar[bool] = ContextVar("page_is_bounded", default=False)


class TooLong(Exception):
    """The page took too long to make."""


@contextmanager
def page(*, bounded: bool) -> Iterator[None]:
    """Count from now; only a page that is `bounded` is given up, since what changes something must come to its end."""
    began, is_bounded = _began.set(monotonic()), _is_bounded.set(bounded)
    try:
        yield
    finally:
        _began.reset(began)
        _is_bounded.reset(is_bounded)


def soft_end() -> float | None:
    """When the page begins to leave things out, as `time.monotonic()` counts; None outside a page."""
    began = _began.get()
    return None if began is None else began + SOFT_SECONDS


def is_used_up() -> bool:
    """Whether the page leaves out what it can."""
    end = soft_end()
    return end is not None and monotonic() >= end


def check() -> None:
    """Raise TooLong if the page is to be given up."""
    began = _began.get()
    if began is not None and _is_bounded.get() and monotonic() >= began + HARD_SECONDS:
        raise TooLong
