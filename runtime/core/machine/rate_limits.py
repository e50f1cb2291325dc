"""Lists the model calls that wait for the rate limit of their provider."""

from dataclasses import dataclass
from datetime import datetime

from runtime.core.continuation import Continuation, FrameState, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitWait:
    """The model call of `agent` waits until `until`. Its provider has put it off `tries` times since `since`."""

    frame: str
    agent: str
    model: str
    until: datetime
    since: datetime
    tries: int


def rate_limit_waits(now: Continuation) -> tuple[RateLimitWait, ...]:
    """Return the calls that wait for a rate limit, the oldest frame first. A paused or ending run has none."""
    if now.is_paused or now.phase is not Phase.STARTED:
        return ()
    return tuple(
        RateLimitWait(
            frame=frame.id,
            agent=frame.agent,
            model=frame.outage.limited,
            until=frame.until,
            since=frame.outage.since,
            tries=frame.outage.tries,
        )
        for frame in now.frames.values()
        if frame.state is FrameState.RETRYING
        and frame.until is not None
        and frame.outage is not None
        and frame.outage.limited
    )
