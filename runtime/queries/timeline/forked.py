"""Builds the spans of the frames that a fork starts with."""

from datetime import datetime

from runtime.core.continuation import SETTLED, Frame, FrameState
from runtime.core.ids import depth_of
from runtime.queries.timeline.calls import CallSpans
from runtime.queries.timeline.frames import FrameSpans

_ASKING = frozenset({FrameState.ASKING, FrameState.RETRYING})


def track(frame: Frame, at: datetime) -> FrameSpans:
    """Open the frame at `at`, with the calls of its turn; only those can still take time."""
    made = FrameSpans(
        id=frame.id,
        parent=frame.parent,
        agent=frame.agent,
        depth=depth_of(frame.id),
        turn=frame.turn,
    )
    made.open(at, asks=frame.state in _ASKING)
    for call in frame.of_turn():
        words = "recorded in the original" if call.state in SETTLED else "proposed, not checked yet"
        of_call = CallSpans(
            step=f"{frame.id}/{call.id}",
            tool=call.tool,
            depth=made.depth + 1,
            child=call.frame,
            settled=call.state in SETTLED,
            words=words,
        )
        made.calls[call.id] = of_call
        made.items.append(of_call)
        made.of_turn.append(of_call)
    return made
