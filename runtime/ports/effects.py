"""Model calls and tool calls: their requests, their outcomes, and the handler that performs them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from runtime.core.run.continuation import Call, CutReply, GivenReply, PlanItem
from runtime.core.run.events import Proposal
from runtime.core.values.enums import CallPreview, EffectClass, FailureCause
from runtime.core.values.ids import ROOT
from runtime.ports.agents import AgentInfo, CallInfo, Instructions, TurnBoundary, VersionChange

PREVIEW_SECONDS = 2.0
# Of an edit, and just before the effect: a new process loads the tool's client first.
PREVIEW_AGAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call. `messages` are the frame's, oldest first.

    `{"role": "input", "content": <json>}`, perhaps with `memory`, what the run remembers of earlier ones, oldest first:
    `{"run": str, "kind": "asked" or "answered", "by": str, "at": str, "text": str}`, `text` is null if it was erased.
    `{"role": "model", "reply": <opaque>, "text": str, "calls": ["c1.0", …]}`, with `given_by` if a person gave it.
    `{"role": "results", "results": [{"call", "tool", "outcome", "content"}, …]}` in the order of the proposals.
    `outcome` is `returned`, `failed`, `denied` or `refused`. A result that a person reported also has `reported_by`.
    That of a call whose arguments a person changed has `edited_by` and the new `args`.
    The result of an expired approval, of a call to which a person requested changes, or of one that a person gave up,
    has `verdict`: `expire`, `request_changes` or `give_up`.
    `{"role": "summary", "content": str, "of": int}` stands for that many earlier messages.
    `{"role": "message", "by": str, "content": str}` is a person's message to the run. The last `unheard` messages are
    such ones, and new to the model.

    `model` is the one to call, empty for the agent's first; `queue_number` is the one from RateLimited, 0 for none.
    `summary` asks for a summary of these messages, from the second on, as the text of the reply. `instructions` is
    the text that a function made of the frame's input; empty for the agent's own. `calls` are the frame's calls: they
    hold the arguments, which stored replies leave out. `todo` is the plan that the model keeps.

    `cut` is the reply to these messages that was cut off before. `fork_reply` is one that a person gave in a fork: it
    is read as one of the model, which is not called. With `memory_tokens` a summary is one of the input's memory, in so
    many tokens at most.

    With `inquiry`, its id, the last message is a person's inquiry about a call that waits for a person, and the one
    before has the results of its turn so far, where `outcome` may be `waiting`. The answer is text, and no call of it
    is made:
    `{"role": "question", "by": str, "content": str, "tool": str, "call": str}`
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
    inquiry: UUID | None = None
    cut: CutReply | None = None
    memory_tokens: int = 0
    todo: tuple[PlanItem, ...] = ()
    fork_reply: GivenReply | None = None

    @property
    def reads_messages(self) -> bool:
        """Whether this is the turn of the first agent: such a call has the messages of people, a summary has none."""
        return self.frame == ROOT and not self.summary and self.inquiry is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """One attempt at one tool call; `key` is the idempotency key, the same for every attempt.

    `effect` is the effect class fixed at admission. `requester` started the run, with `business_key` if it has one;
    `approvers` approved this call, with a `comment` if they wrote one. `input` is the calling agent's input. `todo` is
    its plan, for the call that changes it.
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
    approvers: tuple[str, ...] = ()
    comment: str | None = None
    business_key: str | None = None
    input: Any = None
    todo: tuple[PlanItem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRequest:
    """A preview of the call `of`, which is about to be gated or started. `digest` is that of its action."""

    of: ToolRequest
    digest: str
    deadline: float
    effect: EffectClass = EffectClass.READ

    @property
    def frame(self) -> str:
        """The frame of the call."""
        return self.of.frame

    @property
    def call(self) -> str:
        """The call."""
        return self.of.call

    @property
    def tool(self) -> str:
        """The tool of the call."""
        return self.of.tool

    @property
    def key(self) -> str:
        """The idempotency key of the call."""
        return self.of.key


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A model's reply. `reply` is the provider's message as JSON, stored and returned unchanged; usage counts tokens.

    `model` is the one that answered, as configured. `cost` is in micro-units of US dollars, None if the price is
    unknown. `output` is the result of an agent whose result is typed: then there are no calls. `reply` may leave out
    data of the other fields; `output_kept` says so for `output`, see ModelReplied. `at_once` is as there. `fallback` is
    the agent's next model, which is called if this reply cannot be kept.
    """

    reply: Any
    text: str
    calls: tuple[Proposal, ...] = ()
    output: dict[str, Any] | None = None
    output_kept: bool = False
    at_once: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    model: str = ""
    fallback: str = ""
    cost: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailure:
    """A model call without a reply.

    `retryable` says that a retry can help; `retry_after` is the wait in seconds the provider asked for. `model` is
    the one that failed, `fallback` the agent's next, empty for none. `partial` is the text received before an
    interruption, which is about `tokens` long; `usage` and `cost` are as far as they are known then. `provider_text`
    is the error text of the provider, for admins.
    """

    error: str
    retryable: bool = False
    retry_after: float | None = None
    cause: FailureCause = FailureCause.PROVIDER
    model: str = ""
    fallback: str = ""
    partial: str = ""
    provider_text: str = ""
    tokens: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    cost: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialReply:
    """The part of a reply that was received so far: its fields are as in ModelFailure."""

    text: str = ""
    tokens: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    cost: int | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimited:
    """The model was not called, because its provider limits requests.

    It may be called at that time, with this queue number.
    """

    model: str
    until: datetime
    queue_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The tool returned this value; of a preview it is a `Preview`."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailure:
    """The tool failed: its model sees the error, or with `retryable` the tool certainly did nothing and may be retried.

    `retry_after` is the wait in seconds that the other side asked for. `credential` says which credential a person must
    replace first, and how; empty if none.
    """

    error: str
    retryable: bool = False
    retry_after: float | None = None
    cause: FailureCause = FailureCause.PROVIDER
    credential: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The outcome is unknown: the tool may or may not have had its effect."""

    error: str
    cause: FailureCause = FailureCause.TOOL


Abort = Callable[[], None]
Keep = Callable[[PartialReply], None]
Outcome = ModelAnswer | ModelFailure | RateLimited | ToolResult | ToolFailure | Unknown


class EffectHandler(Protocol):
    """Performs the commands of the core; implemented by agents, in workers only."""

    def agent(self, name: str) -> AgentInfo:
        """Raise UnknownAgent if this process has no such agent."""

    def read_fingerprints(self) -> Mapping[str, str]:
        """Return the version of every agent that this process has, by name."""

    def compare_version(self, name: str, fingerprint: str) -> VersionChange | None:
        """Compare this process's agent with that version of it; None if they are the same.

        Raises UnknownAgent.
        """

    def receive(self, agent: str, value: Any) -> Any:
        """Read an input with the agent's own code and return it as JSON, with defaults. Raise InvalidInput."""

    def instruct(
        self, agent: str, agent_input: Any, *, at: datetime, number: int | None = None
    ) -> Instructions:
        """Make the agent's instructions for this input, with the version of its prompt that was in production `at`.

        `number` is that of another version of the prompt, 0 for the text in the code.

        Raise InvalidInput if the author's function fails, or if the prompt names a variable that the input lacks.
        """

    def describe(self, *, agent: str, tool: str, args: Any) -> CallInfo:
        """Describe a proposed call, purely and quickly. Raise CallRejected if the call cannot be made."""

    def hold_reason(self, position: "TurnBoundary") -> str:
        """Return the reason to stop the agent before its next model call; empty to continue. Must be quick."""

    def is_scripted(self, agent: str) -> bool:
        """Say whether a script of this process replies for the agent, at once. Raise UnknownAgent."""

    def preview(self, request: PreviewRequest) -> CallPreview:
        """Preview a call, from any thread. Never raises: every failure is a `missing`."""

    def perform(self, request: ToolRequest) -> Outcome:
        """Make the call, from any thread. Never raises: every failure is an outcome."""

    def start_model_call(
        self,
        request: ModelRequest,
        deliver: Callable[[Outcome], None],
        keep: Keep | None = None,
    ) -> Abort:
        """Start the model call and return at once. `deliver` gets its outcome from any thread, exactly once.

        `keep` gets the received part of the reply every few seconds, from any thread; it returns at once. The returned
        function ends the call early, from any thread. Its outcome is then a failure with the text
        received so far.
        """
