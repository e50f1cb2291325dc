"""The commands that the core gives the worker: plain data, planned again from every state."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFrame:
    """Look the agent up and open a frame for it."""

    frame: str
    agent: str
    input: Any
    parent: str | None = None
    call: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Call the frame's model with the frame's messages; with `summary`, have them summed up first."""

    frame: str
    summary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerInquiry:
    """Have the frame's model answer a person's inquiry about a call, outside of its conversation."""

    frame: str
    inquiry: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCall:
    """Check a proposed call: it is admitted, gated or refused."""

    frame: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTool:
    """Record the intent of this attempt, then perform it."""

    frame: str
    call: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWait:
    """Start the wait of a call, as its options say."""

    frame: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenInDoubt:
    """Open an in-doubt gate for a call whose outcome is unknown."""

    frame: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailFrame:
    """Fail a frame whose item cannot continue, in place of the next call of its model."""

    frame: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFrame:
    """Close a finished frame: its outcome becomes that of the parent's call."""

    frame: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRun:
    """End a run that cannot continue: start nothing new, and fail it when its running calls have ended."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """End the run: its root agent has finished, or a person ended it."""


Command = (
    OpenFrame
    | CallModel
    | AnswerInquiry
    | CheckCall
    | StartTool
    | StartWait
    | OpenInDoubt
    | FailFrame
    | CloseFrame
    | CancelRun
    | EndRun
)
