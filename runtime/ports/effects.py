"""Model calls and tool calls: their requests, their outcomes, and the handler that performs them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from runtime.core.continuation import Call
from runtime.core.enums import EffectClass, FailureCause
from runtime.core.events import Proposal
from runtime.ports.agents import AgentInfo, CallInfo, TurnBoundary, VersionChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call. `messages` are the frame's, oldest first:

    `{"role": "input", "content": <json>}`,
    `{"role": "model", "reply": <opaque>, "text": str, "calls": ["c1.0", …]}` and
    `{"role": "results", "results": [{"call", "tool", "outcome", "content"}, …]}` in proposal order,
    where outcome is `returned`, `failed`, `denied` or `refused`; a result that a person reported
    has `reported_by` as well, one of a call whose approval expired or that a person gave up has `verdict`,
    `expire` or `give_up`. `{"role": "summary", "content": str, "of": int}` stands for that many messages
    that were before it, `{"role": "message", "by": str, "content": str}` is what a person wrote to the run;
    the last `unheard` messages are such ones, and new to the model. `model` is the one to ask, empty for the
    first of the agent's; `queue_number` is the one of RateLimited, 0 for nothing.

    `summary` asks for a summary of these messages, from the second on: an answer whose text it is.
    `instructions` is the text that a function made of the frame's input; empty for the agent's own. `calls` are the
    frame's calls: they hold the arguments, which stored replies leave out.
    """

    run: UUID
    frame: str
    agent: str
    messages: tuple[dict[str, Any], ...]
    deadline: float
    model: str = ""
    queue_number: int = 0
    summary: bool = False
    unheard: int = 0
    instructions: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """One attempt at one tool call; `key` is the idempotency key, the same for every attempt.

    `effect` is the class frozen when the call was judged. `requester` started the run, with `business_key` if it has
    one; `input` is the calling agent's input.
    """

    run: UUID
    frame: str
    call: str
    attempt: int
    agent: str
    tool: str
    args: dict[str, Any]
    key: str
    deadline: float
    effect: EffectClass = EffectClass.WRITE
    requester: str = ""
    business_key: str | None = None
    input: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """`reply` is the provider's message as JSON, stored and handed back untouched; usage counts tokens.

    `model` is the one that answered, as it is configured. `cost` is in micro-units of US dollars, None
    if the price is unknown. `output` is the result of an agent whose result is typed: then there are no calls.
    `reply` may leave out what the others say; `output_kept` tells that of `output`, see ModelReplied.
    """

    reply: Any
    text: str
    calls: tuple[Proposal, ...] = ()
    output: dict[str, Any] | None = None
    output_kept: bool = False
    usage: dict[str, int] = field(default_factory=dict)
    model: str = ""
    cost: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailure:
    """A model call without a reply. `retry_after` is how many seconds the provider asked to wait.

    `model` is the one that failed, `fallback` the agent's next, empty for none. `partial` is the text that
    came before it broke off. `said` is the provider's error text, for admins.
    """

    error: str
    retryable: bool = False
    retry_after: float | None = None
    cause: FailureCause = FailureCause.PROVIDER
    model: str = ""
    fallback: str = ""
    partial: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimited:
    """The model was not asked: its provider wants fewer requests. It may be, with this queue number, at that time."""

    model: str
    until: datetime
    queue_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailure:
    """The tool said no, which is told to the model, or (`retryable`) certainly did nothing and may be tried again.

    `retry_after` is how many seconds the other side asked to wait.
    """

    error: str
    retryable: bool = False
    retry_after: float | None = None
    cause: FailureCause = FailureCause.PROVIDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Anything else: the tool may or may not have had its effect."""

    error: str
    cause: FailureCause = FailureCause.TOOL


Abort = Callable[[], None]


Outcome = ModelAnswer | ModelFailure | RateLimited | ToolResult | ToolFailure | Unknown


class EffectHandler(Protocol):
    """Does what the core plans; implemented by agents, in workers only."""

    def agent(self, name: str) -> AgentInfo:
        """Raise UnknownAgent if this process has no such agent."""

    def fingerprints(self) -> Mapping[str, str]:
        """The version of every agent that this process has, by name."""

    def compare_version(self, name: str, fingerprint: str) -> VersionChange | None:
        """How this process's agent differs from that version of it; None if it is the same.

        Raises UnknownAgent.
        """

    def receive(self, agent: str, value: Any) -> Any:
        """Read an input with the agent's own code and return it as JSON, with defaults. Raise InvalidInput."""

    def instruct(self, agent: str, given: Any) -> str:
        """Make the agent's instructions for this input; return an empty text if they are the same for every input.

        Raise InvalidInput if the author's function fails.
        """

    def describe(self, *, agent: str, tool: str, args: Any) -> CallInfo:
        """Pure and quick. Raise CallRejected if the call cannot be made."""

    def hold_reason(self, position: "TurnBoundary") -> str:
        """Why the agent is to stop before its next model call, in a sentence; empty to go on. Quick."""

    def perform(self, request: ToolRequest) -> Outcome:
        """Do it, from any thread. Never raises: whatever happens is an outcome."""

    def start_model_call(self, request: ModelRequest, deliver: Callable[[Outcome], None]) -> Abort:
        """Ask the model, and return at once. `deliver` gets the outcome, from any thread, once and in any case.

        What is returned ends the call early, from any thread: its outcome is then a fault with what came so far.
        """
