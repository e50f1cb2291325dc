"""What the engine asks of the rooms above it: the Protocols, their plain data, and the socket they plug into."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from django.db.models import Q

from runtime.core.decisions import Decision, EffectClass, GateKind, Risk
from runtime.core.events import TOOL_RETRIES, Proposal, RetryPolicy

T = TypeVar("T")

# Who acts


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whoever asks for something through a door. `token` is the id of the API token used, None in the browser."""

    person: str
    token: str | None = None


class Forbidden(Exception):
    """The actor may see the thing but not do this; `code` is one of `requester`, `not_eligible`, `scope`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Access(Protocol):
    """Who may do and read what about runs; implemented by approvals."""

    def require(self, actor: Actor, scope: str) -> None:
        """Raise Forbidden unless the actor's token has `scope` and its owner has that right.

        `scope` is one of the scopes of the API, for example `runs:start`.
        """

    def readable_runs(self, actor: Actor) -> Q:
        """The condition on Run that holds for exactly the runs this actor may read."""

    def may_cancel(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may cancel a run of `requester` that it can read."""

    def reads_continuations(self, actor: Actor) -> bool:
        """Whether the actor may read the continuation of a run that it can read."""


# What agents are


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """What the engine freezes of an agent when a frame opens. Digests are `sha256:<hex>`."""

    name: str
    fingerprint: str
    prompt: str
    plan: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What the code says of one proposed call: how risky it is and how to put it in a sentence.

    `schema` is the JSON Schema of the arguments, `schema_digest` its digest; `deadline` is in seconds;
    `delegate` names the sub-agent when the call is a delegation; `gated` asks for a person whatever policy says.
    `result_schema` is the JSON Schema of what the tool returns, None if it does not say. `expires_in` is how
    many seconds people have to decide, None for the installation's default.
    """

    tool: str
    effect: EffectClass
    risk: Risk
    gated: bool
    sentence: str
    schema: dict[str, Any]
    schema_digest: str
    deadline: float
    delegate: str | None = None
    result_schema: dict[str, Any] | None = None
    retry: RetryPolicy = TOOL_RETRIES
    expires_in: float | None = None


class UnknownAgent(Exception):
    """This process has no agent of that name."""


class CallRejected(Exception):
    """A proposed call cannot be made: unknown tool or arguments that break its schema; the model is told."""


class InvalidInput(Exception):
    """A run's input breaks the agent's input schema; `field` is a dotted path."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field
        self.detail = detail


class AgentCatalogue(Protocol):
    """The published agents, as the web knows them without importing author code; implemented by agents."""

    def check_input(self, agent: str, value: Any) -> None:
        """Raise UnknownAgent or InvalidInput unless `value` may start `agent`."""


# What agents do


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call. `messages` are the frame's, oldest first:

    `{"role": "input", "content": <json>}`,
    `{"role": "model", "reply": <opaque>, "text": str, "calls": ["c1.0", …]}` and
    `{"role": "results", "results": [{"call", "tool", "outcome", "content"}, …]}` in proposal order,
    where outcome is `returned`, `failed`, `denied` or `refused`; a result that a person reported
    has `reported_by` as well.
    """

    run: UUID
    frame: str
    agent: str
    messages: tuple[dict[str, Any], ...]
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """One attempt at one tool call; `key` is the idempotency key, the same for every attempt.

    `effect` is the class frozen when the call was judged.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """`reply` is the provider's message as JSON, stored and handed back untouched; usage counts tokens."""

    reply: Any
    text: str
    calls: tuple[Proposal, ...] = ()
    usage: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFault:
    """`again` says that another attempt can help, `after` how many seconds the provider asked to wait."""

    error: str
    again: bool = False
    after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFault:
    """The tool said no, which is told to the model, or (`again`) certainly did nothing and may be tried again.

    `after` is how many seconds the other side asked to wait.
    """

    error: str
    again: bool = False
    after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Anything else: the tool may or may not have had its effect."""

    error: str


Outcome = ModelAnswer | ModelFault | ToolResult | ToolFault | Unknown


class EffectHandler(Protocol):
    """Does what the core plans; implemented by agents, in workers only."""

    def agent(self, name: str) -> AgentFacts:
        """Raise UnknownAgent if this process has no such agent."""

    def describe(self, *, agent: str, tool: str, args: Any) -> CallFacts:
        """Pure and quick. Raise CallRejected if the call cannot be made."""

    def perform(self, request: ModelRequest | ToolRequest) -> Outcome:
        """Do it, from any thread. Never raises: whatever happens is an outcome."""


# Who decides


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPicture:
    """The frozen picture of one call behind a gate: exactly what will run, or what is in doubt.

    `path` goes from the root agent over sub-agents to the tool; `action_digest` binds it all.
    `expires_at` is when time itself decides. `not_before` is when a call in doubt may run again:
    after its intent, its deadline and a lease, nothing of the first start can be under way.
    """

    run: UUID
    gate: UUID
    kind: GateKind
    frame: str
    call: str
    tool: str
    args: dict[str, Any]
    schema: dict[str, Any]
    path: tuple[str, ...]
    effect: EffectClass
    risk: Risk
    sentence: str
    action_digest: str
    requester: str
    expires_at: datetime | None = None
    not_before: datetime | None = None
    result_schema: dict[str, Any] | None = None


class NotConfirmed(Exception):
    """A decision does not match what was decided, or nobody signed it: the run is parked."""


class ApprovalVoid(Exception):
    """The approval is genuine, but does not hold any more (rights were taken away): people are asked again."""


class Gatekeeper(Protocol):
    """Says which calls need a person and keeps their requests; implemented by approvals."""

    def gates(self, facts: CallFacts) -> bool:
        """Whether this call waits for a person. Policy may be stricter than the tool, never laxer."""

    def open(self, pictures: Sequence[ActionPicture]) -> None:
        """Write one approval request per picture, inside the transaction that opens the gates."""

    def vouch(self, *, gate: UUID, decision: Decision) -> None:
        """When a decision is taken up: raise NotConfirmed unless the web signed exactly this one.

        A decision by time itself (`expire`) has no signature. Raises KeyMissing.
        """

    def confirm(self, *, gate: UUID, action_digest: str) -> None:
        """Just before an approved call starts: return if exactly this action was approved, and still is.

        Raises NotConfirmed, ApprovalVoid, or KeyMissing.
        """

    def expire(self, gate: UUID) -> None:
        """Settle the gate by time, in a transaction of its own, unless somebody was faster."""

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        """Cancel what is still pending at these gates, inside the caller's transaction.

        `actor` cancels the run and is audited, also if it waits at no gate; None is the engine itself.
        """

    def approvals_of(self, gates: Sequence[UUID]) -> dict[UUID, UUID]:
        """The approval request of each gate that has one, by gate, for whoever shows the gates."""


# The socket


@dataclass(slots=True, kw_only=True)
class Socket:
    """What is plugged in. `effects` stays None where agents do not run, in the web above all."""

    access: Access | None = None
    catalogue: AgentCatalogue | None = None
    gatekeeper: Gatekeeper | None = None
    effects: EffectHandler | None = None


_socket = Socket()


def plug(
    *,
    access: Access | None = None,
    catalogue: AgentCatalogue | None = None,
    gatekeeper: Gatekeeper | None = None,
    effects: EffectHandler | None = None,
) -> None:
    """Connect implementations; called by config.wiring once per process, and by tests."""
    _socket.access = access or _socket.access
    _socket.catalogue = catalogue or _socket.catalogue
    _socket.gatekeeper = gatekeeper or _socket.gatekeeper
    _socket.effects = effects or _socket.effects


def access() -> Access:
    return _plugged(_socket.access, "access")


def catalogue() -> AgentCatalogue:
    return _plugged(_socket.catalogue, "catalogue")


def gatekeeper() -> Gatekeeper:
    return _plugged(_socket.gatekeeper, "gatekeeper")


def effects() -> EffectHandler:
    return _plugged(_socket.effects, "effects")


def _plugged(port: T | None, name: str) -> T:
    if port is None:
        raise LookupError(f"nothing is plugged into the port {name!r} of this process")
    return port
