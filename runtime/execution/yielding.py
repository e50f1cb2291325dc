"""How long a worker goes on with a run that has more to do, and that it lets go of such a run in time.

Once a tenure has ended nothing new starts. What is under way may finish and is journaled; then the run
is let go of, due at once, for another worker. What does not finish before the shift is over is let go
of as well, and whoever takes the run over treats it as work that was lost: by its effect class. A run
of which an agent is stopped is let go of too; nobody takes it again before the stop is lifted. A run
that is tried alone in its process is let go of when it has got on, and one that took many steps when
others wait.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from runtime.core.continuation import CallState, Continuation, FrameState
from runtime.core.planning import plan
from runtime.execution.heartbeat import Held, Shift
from runtime.store import kill_switches, leases

STEPS, SECONDS = 50, 30.0


class Tenure:
    """One coordinator's time with its run."""

    def __init__(self, held: Held, shift: Shift) -> None:
        self._held = held
        self._shift = shift
        self._got_on = False
        self._steps = 0
        self._since = time.monotonic()
        self.makes_room = False

    def count_step(self, others_wait: Callable[[], bool]) -> None:
        """After each step: every 50 of them, and every 30 s, look whether other runs wait for a worker."""
        self._steps += 1
        if self._steps < STEPS and time.monotonic() - self._since < SECONDS:
            return
        self._steps, self._since = 0, time.monotonic()
        self.makes_room = others_wait()

    def get_on(self) -> None:
        """Something that was under way came to its end: the trial of an isolated run is over."""
        self._got_on = self._held.claim.isolated

    def ended(self, now: Continuation) -> bool:
        """Whether nothing new may start."""
        return self._shift.ends or self._got_on or self.makes_room or self._stopped(now)

    @property
    def forfeited(self) -> bool:
        """Whether what is under way is not waited for any longer."""
        return self._shift.over()

    def hands_over(self, now: Continuation) -> bool:
        """Whether the run, let go of now, has work for another worker at once."""
        return self._leaves_work(now) and not self._stopped(now)

    def due(self, now: Continuation, at: datetime) -> datetime | None:
        """When the run is due if it is let go of at `at` with more to do, None if it is not."""
        if not self._leaves_work(now):
            return None
        if self._stopped(now) and not self._held.stops & {kill_switches.EVERY_AGENT, now.agent}:
            # Claims look at the run's own agent alone: look now and then whether this one's stop is lifted.
            return at + timedelta(seconds=leases.BACK_OFF_SECONDS)
        return at

    def _leaves_work(self, now: Continuation) -> bool:
        return not now.ended and self.ended(now) and bool(plan(now) or _under_way(now))

    def _stopped(self, now: Continuation) -> bool:
        names = self._held.stops
        if not names:
            return False
        at_work = (frame.agent for frame in now.frames.values() if frame.state != FrameState.CLOSED)
        return not names.isdisjoint({kill_switches.EVERY_AGENT, now.agent, *at_work})


def _under_way(now: Continuation) -> bool:
    return any(
        call.state is CallState.STARTED for frame in now.frames.values() for call in frame.calls
    )
