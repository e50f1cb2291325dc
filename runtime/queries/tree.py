"""A run as people read it, as data: a tree of frames, each with its calls and what was said in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from runtime.core.continuation import SETTLED, CallState

Kind = Literal["input", "text", "call", "decision", "result", "fault"]

_TITLES: dict[Kind, str] = {
    "input": "given by",
    "text": "written by",
    "call": "asked for by",
    "decision": "decided by",
    "result": "result of",
    "fault": "error of",
}

_WORDS = {
    CallState.PROPOSED: "proposed, not judged yet",
    CallState.ADMITTED: "about to start",
    CallState.GATED: "waiting for a person",
    CallState.REFUSED: "refused, it cannot be made",
    CallState.DENIED: "denied, never started",
    CallState.STARTED: "started",
    CallState.RETRYING: "will be tried again",
    CallState.DELEGATED: "in the hands of a sub-agent",
    CallState.RETURNED: "done",
    CallState.FAILED: "failed",
    CallState.UNKNOWN: "in doubt: it was started and nobody knows what became of it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One thing said in a frame. `by` is a person, an agent or a tool; `value` is JSON or plain text."""

    kind: Kind
    by: str
    value: Any
    at: datetime

    @property
    def title(self) -> str:
        """How it is introduced; `by` follows."""
        return _TITLES[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """One call. `note` is the reason or error that goes with its state; `child` works on it."""

    id: str
    frame: str
    agent: str
    tool: str
    args: Any
    state: CallState
    note: str
    decided_by: str
    result: Any
    child: "FrameView | None"

    @property
    def words(self) -> str:
        if self.state is CallState.ADMITTED and self.decided_by:
            return "approved, about to start"
        return _WORDS[self.state]

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameView:
    """One activation of one agent. `plan` is None if the agent has not declared its steps."""

    id: str
    agent: str
    depth: int
    plan: tuple[str, ...] | None
    outcome: str | None
    calls: tuple[CallView, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`roots` is the root frame, and any frame whose parent could not be read."""

    roots: tuple[FrameView, ...]
    unreadable: tuple[int, ...]

    def frames(self) -> Iterator[FrameView]:
        """Every frame, a parent before its children."""
        stack = list(reversed(self.roots))
        while stack:
            frame = stack.pop()
            yield frame
            stack.extend(call.child for call in reversed(frame.calls) if call.child)

    def call(self, frame: str, call: str) -> CallView | None:
        """One call, None if the journal does not say anything of it."""
        found = (c for f in self.frames() if f.id == frame for c in f.calls if c.id == call)
        return next(found, None)
