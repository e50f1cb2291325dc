"""Decides when a worker yields a run that has more to do, and releases it in time.

Once a run yields, nothing new starts. Running calls may finish and are journaled; then the runner releases the run,
due at once, for another worker. A call that does not finish before the drain is over is given up, and the worker that
claims the run next treats it as lost work, by its effect class.

A run yields when its process drains; when it took 50 steps or 30 s and other runs wait; when an agent of it is switched
off; and, if it is tried alone in its process, when it made progress. A run whose agent is switched off is claimed again
after the switch is lifted.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from runtime.core.continuation import CallState, Continuation, FrameState
from runtime.core.machine.planning import plan
from runtime.execution.heartbeat import ClaimedRun, Drain
from runtime.store import leases
from runtime.store.tables import kill_switches

STEPS, SECONDS = 50, 30.0


class YieldPolicy:
    """Of one runner and its run."""

    def __init__(self, held: ClaimedRun, draining: Drain) -> None:
        self._held = held
        self._draining = draining
        self._made_progress = False
        self._steps = 0
        self._since = time.monotonic()
        self.should_yield = False

    def count_step(self, has_waiting_runs: Callable[[], bool]) -> None:
        """Count a step. After every 50 steps, and every 30 s, find out whether other runs wait for a worker."""
        self._steps += 1
        if self._steps < STEPS and time.monotonic() - self._since < SECONDS:
            return
        self._steps, self._since = 0, time.monotonic()
        self.should_yield = has_waiting_runs()

    def made_progress(self) -> None:
        """An effect has ended: the trial of a run that is alone in its process is over."""
        self._made_progress = self._held.claim.isolated

    def ended(self, now: Continuation) -> bool:
        """Whether nothing new may start."""
        return (
            self._draining.started or self._made_progress or self.should_yield or self._stopped(now)
        )

    @property
    def gives_up(self) -> bool:
        """Whether running calls are not waited for any longer."""
        return self._draining.is_over()

    def has_ready_work(self, now: Continuation) -> bool:
        """Whether the run, if it is released now, has work for another worker at once."""
        return self._has_remaining_work(now) and not self._stopped(now)

    def due(self, now: Continuation, at: datetime) -> datetime | None:
        """When a run that is released at `at` is due, None if it has nothing more to do."""
        if not self._has_remaining_work(now):
            return None
        if self._stopped(now) and not self._held.kill_switches & {
            kill_switches.EVERY_AGENT,
            now.agent,
        }:
            # A claim checks the run's own agent alone. Claim it now and then, to see whether this switch is lifted.
            return at + timedelta(seconds=leases.BACK_OFF_SECONDS)
        return at

    def _has_remaining_work(self, now: Continuation) -> bool:
        return not now.ended and self.ended(now) and bool(plan(now) or _under_way(now))

    def _stopped(self, now: Continuation) -> bool:
        names = self._held.kill_switches
        if not names:
            return False
        at_work = (frame.agent for frame in now.frames.values() if frame.state != FrameState.CLOSED)
        return not names.isdisjoint({kill_switches.EVERY_AGENT, now.agent, *at_work})


def _under_way(now: Continuation) -> bool:
    return any(
        call.state is CallState.STARTED for frame in now.frames.values() for call in frame.calls
    )
