"""Messages of people to a run: each is kept until the root's model hears it, at the next boundary of a turn.

What a model is given are its frame's messages, then whatever nobody has heard yet. A reply says how many of
those it was given, so that one that comes while the model is at work waits for its next turn. An answer that
was given without having heard all of them is not the last one: the model is asked again.
"""

from typing import Any

from runtime.core.continuation import Continuation, Frame, FrameState, Undelivered
from runtime.core.errors import IllegalTransition
from runtime.core.events import MessageReceived
from runtime.core.fast_replace import replace
from runtime.core.ids import ROOT
from runtime.core.machine.origin import joined
from runtime.core.machine.transitions import FRAMES, RUNS, next_state

MESSAGE = "message"  # the role of what a person said


def receive(now: Continuation, event: MessageReceived) -> Continuation:
    """Keep the message; a root that has answered is asked once more. Raises IllegalTransition."""
    phase = next_state(RUNS, now.phase, event.type, subject=str(now.run))
    unheard = (*now.unheard, Undelivered(by=event.by, text=event.text))
    now = joined(replace(now, phase=phase, unheard=unheard), event.by)
    root = now.root
    if root is None or root.state is not FrameState.ANSWERED:
        return now
    state = next_state(FRAMES, root.state, event.type, subject=root.id)
    return now.with_frame(replace(root, state=state, outcome=None))


def undelivered_to(now: Continuation, frame: str) -> tuple[dict[str, Any], ...]:
    """What comes after the frame's own messages when its model is asked."""
    return tuple(_message(one) for one in now.unheard) if now.unheard and frame == ROOT else ()


def deliver(now: Continuation, frame: Frame, count: int) -> tuple[Continuation, Frame]:
    """The first `count` messages are the frame's now. Raises IllegalTransition if there are not so many."""
    there = undelivered_to(now, frame.id)
    if not 0 <= count <= len(there):
        raise IllegalTransition("Frame", f"{len(there)} unheard", f"heard {count}", frame.id)
    if not count:
        return now, frame
    frame = replace(frame, messages=frame.messages + there[:count])
    return replace(now, unheard=now.unheard[count:]), frame


def _message(one: Undelivered) -> dict[str, Any]:
    return {"role": MESSAGE, "by": one.by, "content": one.text}
