"""Counts tool calls that are past their deadline and still keep their thread, and says when they are too many.

A thread cannot be ended. A call that overruns is waited for no more, but its slot stays taken until it returns. Once
half of the slots of a process are taken that way, the process can only be replaced.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

SHARE = 2  # one slot in so many


@dataclass(slots=True, eq=False)
class Call:
    """One call in a tool's thread."""

    tool: str
    key: str
    ended: bool = False


class Overruns:
    """The overrunning calls of one process. `replace` is called once, and must be quick and not raise."""

    def __init__(self, slots: int, replace: Callable[[], None]) -> None:
        self._slots = slots
        self._replace = replace
        self._calls: set[Call] = set()
        self._told = False
        self._lock = threading.Lock()

    def past_deadline(self, call: Call) -> None:
        """Count a call whose deadline has passed, unless it has ended."""
        with self._lock:
            if call.ended:
                return
            self._calls.add(call)
            count, tools = len(self._calls), sorted({one.tool for one in self._calls})
            too_many = count * SHARE >= self._slots and not self._told
            self._told = self._told or too_many
        log.error(
            "%s of %s did not end at its deadline and keeps its slot: %d of %d slots are lost so",
            call.tool,
            call.key,
            count,
            self._slots,
        )
        if too_many:
            log.critical(
                "This worker takes no more runs and must be replaced: %d of its %d tool slots are"
                " held by calls past their deadline (tools: %s)",
                count,
                self._slots,
                ", ".join(tools),
            )
            self._replace()

    def end(self, call: Call) -> None:
        """The call has returned, and its slot is free."""
        with self._lock:
            call.ended = True
            self._calls.discard(call)
