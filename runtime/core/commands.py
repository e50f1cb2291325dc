"""What the core asks the shell to do next; plain data, planned anew from every state."""

from dataclasses import dataclass
from typing import Any


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
class CheckCall:
    """Find out whether a proposed call is admitted, gated or refused."""

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
    """Have the call wait, as its terms say."""

    frame: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenInDoubt:
    """Ask people what became of a call whose outcome is unknown."""

    frame: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFrame:
    """The frame's agent is done: hand its outcome to the parent's call."""

    frame: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRun:
    """The run cannot go on: start nothing new, and fail it when nothing is under way."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """The root agent is done, or the run was ended: complete, fail or cancel it."""


Command = (
    OpenFrame
    | CallModel
    | CheckCall
    | StartTool
    | StartWait
    | OpenInDoubt
    | CloseFrame
    | CancelRun
    | EndRun
)
