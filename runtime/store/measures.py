"""Counts what a worker process does, in memory. The heartbeat stores the counts in the row of the worker.

A step costs a few additions. The web process reads the rows, so no worker needs an address of its own.
"""

import json
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from runtime.core.run.continuation import Continuation
from runtime.core.run.events import (
    Event,
    ModelFailed,
    OutcomeUnknown,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
)

# Upper bounds of the buckets of commit times, in seconds. Each row has those it was counted with.
BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

OUTCOMES = {"ToolReturned": "returned", "ToolFailed": "failed", "OutcomeUnknown": "in_doubt"}


class Measures:
    """The counts of one process since it started. Several runners may add to them at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._retries: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._model_errors = 0
        self._calls: Counter[str] = Counter()

    def add_step(self, seconds: float, events: Sequence[Event], *states: Continuation) -> None:
        """Count a committed step, the time from its first attempt to its commit, and what its events say.

        `states` are those after and before the step, which name the tools of its calls.
        """
        with self._lock:
            self._buckets[bisect_left(BOUNDS, seconds)] += 1
            self._seconds += seconds
            for event in events:
                self._add_event(event)
                if states and isinstance(event, ToolReturned | ToolFailed | OutcomeUnknown):
                    self._calls[f"{_tool(event, states)} {OUTCOMES[event.type]}"] += 1

    def _add_event(self, event: Event) -> None:
        if isinstance(event, RetryScheduled):
            of = "model" if event.call is None else "tool"
            self._retries[f"{of} {event.cause}"] += 1
            self._model_errors += of == "model" and event.cause == "error"
        elif isinstance(event, ModelFailed):
            self._model_errors += 1
        if usage := getattr(event, "usage", None):
            for kind in ("input", "output"):
                self._tokens[kind] += usage.get(f"{kind}_tokens", 0)

    def stored(self) -> str:
        """Return the counts as JSON."""
        with self._lock:
            return json.dumps(
                {
                    "bounds": BOUNDS,
                    "buckets": self._buckets,
                    "seconds": round(self._seconds, 6),
                    "retries": self._retries,
                    "tokens": self._tokens,
                    "model_errors": self._model_errors,
                    "calls": self._calls,
                }
            )


def cumulative(measures: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return how many steps took at most each bound of a stored histogram; the last bound is +Inf."""
    names = [*map(str, measures.get("bounds", ())), "+Inf"]
    return list(zip(names, accumulate(measures.get("buckets", [0])), strict=True))


def quantile(measures: Mapping[str, Any], share: float) -> float | None:
    """Estimate the time within which this share of the steps was committed, as `histogram_quantile` does.

    None without a step. Above the last bound the answer is that bound.
    """
    found = cumulative(measures)
    wanted = share * found[-1][1]
    if not wanted:
        return None
    low, before = 0.0, 0
    for name, count in found[:-1]:
        if count >= wanted:
            return low + (float(name) - low) * (wanted - before) / (count - before)
        low, before = float(name), count
    return low


def _tool(event: ToolReturned | ToolFailed | OutcomeUnknown, states: Sequence[Continuation]) -> str:
    """Return the tool of the event's call. The step may have made that call, or closed its frame."""
    found = next(state for state in states if event.frame in state.frames)
    return found.call(event.frame, event.call).tool
