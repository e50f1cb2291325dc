"""What can happen to a run, in the past tense: the only thing that changes state.

Times, ids and verdicts enter here, so that replay asks no clock, no code and no changed policy.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from pydantic import Field

from runtime.core.decisions import EffectClass, GateKind, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One call as the model proposed it. `args` is any JSON value; judging checks it against the tool."""

    tool: str
    args: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often something is attempted, and how long to wait in between (seconds, before jitter)."""

    attempts: int
    base: float
    ceiling: float


TOOL_RETRIES = RetryPolicy(attempts=3, base=0.5, ceiling=10.0)
MODEL_RETRIES = RetryPolicy(attempts=6, base=1.0, ceiling=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What was true of a call when it was judged; later code or policy does not change it.

    `delegate` names the agent that a delegated call opens a frame for. `deadline` is in seconds.
    """

    effect: EffectClass
    digest: str
    deadline: float
    delegate: str | None = None
    retry: RetryPolicy = TOOL_RETRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    agent: str
    input: Any
    requester: str
    type: Literal["RunStarted"] = "RunStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOpened:
    """`plan` is the agent's declared steps, None if it declares none; `call` is None for the root."""

    frame: str
    agent: str
    fingerprint: str
    prompt: str
    plan: tuple[str, ...] | None
    input: Any
    parent: str | None = None
    call: str | None = None
    type: Literal["FrameOpened"] = "FrameOpened"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied:
    """`reply` is the provider's message, opaque to the core; text, calls and usage are its facts."""

    frame: str
    reply: Any
    text: str
    calls: tuple[Proposal, ...]
    usage: dict[str, int]
    type: Literal["ModelReplied"] = "ModelReplied"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed:
    frame: str
    error: str
    type: Literal["ModelFailed"] = "ModelFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAdmitted:
    """The call may start without a person."""

    frame: str
    call: str
    terms: Terms
    type: Literal["CallAdmitted"] = "CallAdmitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRefused:
    """The call cannot be made (unknown tool, malformed arguments); the model hears why."""

    frame: str
    call: str
    reason: str
    type: Literal["CallRefused"] = "CallRefused"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOpened:
    """`expires_at` is when time itself decides, None for never."""

    gate: UUID
    kind: GateKind
    frame: str
    call: str
    terms: Terms
    expires_at: datetime | None = None
    type: Literal["GateOpened"] = "GateOpened"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecided:
    """`result` is reported by a person, and only where an uncertain call is said to have happened."""

    gate: UUID
    frame: str
    call: str
    verdict: Verdict
    by: str
    reason: str
    result: Any = None
    type: Literal["GateDecided"] = "GateDecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateClosed:
    """The gate needs nobody any more, and its call is over without a result."""

    gate: UUID
    frame: str
    call: str
    reason: str
    type: Literal["GateClosed"] = "GateClosed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """The intent: committed before the call leaves for the outside."""

    frame: str
    call: str
    attempt: int
    at: datetime
    type: Literal["ToolStarted"] = "ToolStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned:
    frame: str
    call: str
    attempt: int
    result: Any
    type: Literal["ToolReturned"] = "ToolReturned"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailed:
    """The call was certainly not done, or is done with; the model hears the error."""

    frame: str
    call: str
    attempt: int
    error: str
    type: Literal["ToolFailed"] = "ToolFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeUnknown:
    """The call was started and nobody knows what became of it."""

    frame: str
    call: str
    attempt: int
    error: str
    type: Literal["OutcomeUnknown"] = "OutcomeUnknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """The attempt is over without a result and another will follow: not before `until`, or at once.

    `call` is None for an attempt at the frame's model call. A worker's death (`lost`) is nobody's
    failure and does not count.
    """

    frame: str
    call: str | None
    attempt: int
    cause: Literal["error", "lost"]
    error: str
    until: datetime | None = None
    type: Literal["RetryScheduled"] = "RetryScheduled"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEnded:
    """What was waited for has come: the retry of a call, or of the frame's model call, may go on."""

    frame: str
    call: str | None
    type: Literal["WaitEnded"] = "WaitEnded"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameClosed:
    """The frame's agent is done; what it leaves becomes the outcome of its parent's call."""

    frame: str
    outcome: Literal["answered", "failed"]
    content: str
    type: Literal["FrameClosed"] = "FrameClosed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    output: str
    type: Literal["Completed"] = "Completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    error: str
    type: Literal["Failed"] = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelling:
    """Somebody asked for the end of the run, or it must end: nothing new starts from here on."""

    by: str
    reason: str
    type: Literal["Cancelling"] = "Cancelling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    reason: str
    type: Literal["Cancelled"] = "Cancelled"


FrameEvent = ModelReplied | ModelFailed | FrameClosed
CallEvent = (
    CallAdmitted
    | CallRefused
    | GateOpened
    | GateDecided
    | GateClosed
    | ToolStarted
    | ToolReturned
    | ToolFailed
    | OutcomeUnknown
)
WaitEvent = RetryScheduled | WaitEnded
RunEvent = RunStarted | Completed | Failed | Cancelling | Cancelled
Event = RunEvent | FrameOpened | FrameEvent | CallEvent | WaitEvent

TaggedEvent = Annotated[Event, Field(discriminator="type")]
EVENT_TYPES: tuple[type, ...] = get_args(Event)
