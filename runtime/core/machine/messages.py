"""Messages of people to a run: each is kept until the root's model receives it, at the start of a turn.

A model gets its frame's messages, then the undelivered ones. A reply records how many of these its request had, so a
message that arrives during the call waits for the next turn. If a message arrived while the model was answering, the
model is called again.
"""

from typing import Any

from runtime.core.continuation import Continuation, Frame, FrameState, Undelivered
from runtime.core.errors import IllegalTransition
from runtime.core.events import MessageReceived
from runtime.core.fast_replace import replace
from runtime.core.ids import ROOT
from runtime.core.machine.origin import joined, wrote
from runtime.core.machine.transitions import FRAMES, RUNS, next_state

MESSAGE = "message"  # role of a person's message


def receive(now: Continuation, event: MessageReceived) -> Continuation:
    """Keep the message. A root that has already answered calls its model again. Raises IllegalTransition."""
    phase = next_state(RUNS, now.phase, event.type, subject=str(now.run))
    unheard = (*now.unheard, Undelivered(by=event.by, text=event.text))
    now = replace(now, phase=phase, unheard=unheard)
    now = wrote(now, event.by) if event.reviewer else joined(now, event.by)
    root = now.root
    if root is None or root.state is not FrameState.ANSWERED:
        return now
    state = next_state(FRAMES, root.state, event.type, subject=root.id)
    return now.with_frame(replace(root, state=state, outcome=None))


def undelivered_to(now: Continuation, frame: str) -> tuple[dict[str, Any], ...]:
    """Return the messages to append to the frame's own in the next model call."""
    return tuple(_message(one) for one in now.unheard) if now.unheard and frame == ROOT else ()


def deliver(now: Continuation, frame: Frame, count: int) -> tuple[Continuation, Frame]:
    """Move the first `count` undelivered messages to the frame. Raises IllegalTransition if there are fewer."""
    there = undelivered_to(now, frame.id)
    if not 0 <= count <= len(there):
        raise IllegalTransition("Frame", f"{len(there)} unheard", f"heard {count}", frame.id)
    if not count:
        return now, frame
    frame = replace(frame, messages=frame.messages + there[:count])
    return replace(now, unheard=now.unheard[count:]), frame


def _message(one: Undelivered) -> dict[str, Any]:
    return {"role": MESSAGE, "by": one.by, "content": one.text}
