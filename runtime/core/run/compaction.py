"""Compaction: a summary replaces earlier messages of a frame, so that a long run stays bounded.

Only a frame that will call its model next is compacted, so it has no open call. Its input and its last turn stay. The
calls of earlier turns go with their messages: the journal has them.

A summary of what a run remembers is made likewise: before the first turn, in place of the texts.
"""

import json
from collections.abc import Iterator
from typing import Any

from runtime.core.run.continuation import Continuation, Frame, FrameState, replace
from runtime.core.run.events import Compacted, MemorySummarised, Remembered
from runtime.core.run.transitions import FRAMES, next_state
from runtime.core.values.budgets import added
from runtime.core.values.errors import IllegalTransition
from runtime.core.values.ids import ROOT

SUMMARY = "summary"  # role of the message that replaces the earlier ones


def compaction_is_due(frame: Frame) -> bool:
    """Say whether the frame must be compacted before its next model call: it is too long and can be cut."""
    terms = frame.compaction
    if terms is None or frame.state is not FrameState.ASKING or cut_point(frame) < 3:
        return False
    if terms.messages is not None and len(frame.messages) > terms.messages:
        return True
    if terms.bytes is None:
        return False
    # In bytes as the model gets them, with arguments and stored results.
    stored: Iterator[int] = (
        result["stored"]["size"]
        for message in frame.messages
        for result in message.get("results", ())
        if "stored" in result
    )
    args = [call.args for call in frame.calls]
    return sum(stored) + _json_size(frame.messages) + _json_size(args) > terms.bytes


def cut_point(frame: Frame) -> int:
    """Return the position of the last reply; the messages before it can be replaced. 0 without one."""
    places = [index for index, message in enumerate(frame.messages) if message["role"] == "model"]
    return places[-1] if places else 0


def compact(now: Continuation, event: Compacted) -> Continuation:
    """Return the run after the event. Raises IllegalTransition if the frame has an open call or too few messages."""
    frame = now.frame(event.frame)
    state = next_state(FRAMES, frame.state, event.type, subject=frame.id)
    if not 1 < event.until == cut_point(frame):
        raise IllegalTransition("Frame", f"cut at {cut_point(frame)}", event.type, frame.id)
    summary = {"role": SUMMARY, "content": event.summary, "of": event.until - 1}
    frame = replace(
        frame,
        state=state,
        attempt=1,
        failures=0,
        outage=None,
        cut=None,
        messages=(frame.messages[0], summary, *frame.messages[event.until :]),
        calls=frame.of_turn(),
    )
    return replace(now.with_frame(frame), usage=added(now.usage, event.usage))


def memory_is_due(now: Continuation, frame: Frame) -> bool:
    """Say whether the frame's next model call sums up what the run remembers."""
    if not now.memory_tokens or frame.id != ROOT or frame.state is not FrameState.ASKING:
        return False
    return bool(now.memory) and now.memory[0].kind != "summary" and frame.turn == 0


def summarise_memory(now: Continuation, event: MemorySummarised) -> Continuation:
    """Return the run after the event. Raises IllegalTransition if no summary is due."""
    frame = now.frame(event.frame)
    if not memory_is_due(now, frame):
        raise IllegalTransition("Frame", "without a memory to sum up", event.type, frame.id)
    state = next_state(FRAMES, frame.state, event.type, subject=frame.id)
    summary = Remembered(
        run=now.run, kind="summary", by=frame.agent, at=event.at, digest=event.digest
    )
    frame = replace(frame, state=state, attempt=1, failures=0, outage=None, cut=None)
    now = replace(now.with_frame(frame), memory=(summary,))
    return replace(now, usage=added(now.usage, event.usage))


def _json_size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))
