"""Decides when a worker yields a run that has more to do, and releases it in time.

Once a run yields, nothing new starts. Running calls may finish and are journaled; then the runner releases the run,
due at once, for another worker. A call that does not finish before the end of the drain is given up. The worker that
claims the run next treats it as lost work, by its effect class.

A run yields when its process drains, when one of its agents is switched off, and when it took 50 steps or 30 s and
other runs wait. A suspected run also yields when it made progress. A run whose agent is switched off is claimed again
after the switch is lifted.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from runtime.core.call_states import CallState
from runtime.core.continuation import Continuation, FrameState
from runtime.core.machine.planning import plan
from runtime.execution.heartbeat import ClaimedRun, Drain
from runtime.store import leases
from runtime.store.tables import kill_switches

STEPS, SECONDS = 50, 30.0


class YieldPolicy:
    """The yield policy of one runner and its run."""

    def __init__(self, claimed: ClaimedRun, draining: Drain) -> None:
        self._claimed = claimed
        self._draining = draining
        self._made_progress = False
        self._is_suspect = claimed.claim.isolated
        self._losses_count = True
        self._steps = 0
        self._since = time.monotonic()
        self.should_yield = False

    def count_step(self, has_waiting_runs: Callable[[], bool]) -> None:
        """Count a step. After every 50 steps, and every 30 s, check whether other runs wait for a worker."""
        self._steps += 1
        if self._steps < STEPS and time.monotonic() - self._since < SECONDS:
            return
        self._steps, self._since = 0, time.monotonic()
        self.should_yield = has_waiting_runs()

    def made_progress(self) -> None:
        """Record a finished effect."""
        self._made_progress = True

    def take_losses(self) -> bool:
        """Say once whether the run's lost leases no longer count: it made progress since."""
        over = self._losses_count and self._made_progress
        self._losses_count = not self._made_progress
        return over

    def ended(self, now: Continuation) -> bool:
        """Return whether no new effect may start."""
        tried = self._is_suspect and self._made_progress
        return self._draining.started or tried or self.should_yield or self._stopped(now)

    @property
    def drains(self) -> bool:
        """Return whether the process is about to end."""
        return self._draining.started

    @property
    def gives_up(self) -> bool:
        """Return whether the runner stops waiting for running calls."""
        return self._draining.is_over()

    def has_ready_work(self, now: Continuation) -> bool:
        """Return whether a released run has work for another worker at once."""
        return self._has_remaining_work(now) and not self._stopped(now)

    def due(self, now: Continuation, at: datetime) -> datetime | None:
        """Return the due time of a run released at `at`; None if it has no more to do."""
        if not self._has_remaining_work(now):
            return None
        if self._stopped(now) and not self._claimed.kill_switches & {
            kill_switches.EVERY_AGENT,
            now.agent,
        }:
            # A claim checks only the run's own agent. The run is due now and then, to see whether this switch was
            # lifted.
            return at + timedelta(seconds=leases.BACK_OFF_SECONDS)
        return at

    def _has_remaining_work(self, now: Continuation) -> bool:
        return not now.ended and self.ended(now) and bool(plan(now) or _under_way(now))

    def _stopped(self, now: Continuation) -> bool:
        names = self._claimed.kill_switches
        if not names:
            return False
        at_work = (frame.agent for frame in now.frames.values() if frame.state != FrameState.CLOSED)
        return not names.isdisjoint({kill_switches.EVERY_AGENT, now.agent, *at_work})


def _under_way(now: Continuation) -> bool:
    return any(
        call.state is CallState.STARTED for frame in now.frames.values() for call in frame.calls
    )
