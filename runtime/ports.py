"""What the engine asks of the rooms above it: the Protocols, their plain data, and the socket they plug into."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar
from uuid import UUID

import psycopg
from django.db.models import Q

from runtime.core.budgets import Budget, Rates
from runtime.core.continuation import Call
from runtime.core.decisions import Blame, Decision, EffectClass, GateKind, Risk
from runtime.core.events import Change, Proposal
from runtime.core.terms import MODEL_TERMS, TOOL_RETRIES, CompactionTerms, ModelTerms, RetryPolicy
from runtime.errors import RequestError

T = TypeVar("T")

# Who acts


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whoever asks for something through a door. `token` is the id of the API token used, None in the browser."""

    person: str
    token: str | None = None


class Forbidden(RequestError):
    """The actor may see the thing but not do this; `code` is the reason: `requester`, `origin`, `scope`, …"""

    status = 403

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An SQL expression that a statement of the engine's reads beside its own.

    `parameters` are named so that they meet none of another expression.
    """

    sql: str
    parameters: dict[str, object]


class Access(Protocol):
    """Who may do and read what about runs; implemented by approvals."""

    def require(self, actor: Actor, scope: str) -> None:
        """Raise Forbidden unless the actor's token has `scope` and its owner has that right.

        `scope` is one of the scopes of the API, for example `runs:start`.
        """

    def rights(self, actor: Actor) -> Expression:
        """Return the expression of what the actor's rights rest on, for `require_read`."""

    def require_read(self, actor: Actor, scope: str, rights: Any, *, at: datetime) -> None:
        """Raise Forbidden as `require` does, by the value that `rights` had at this time."""

    def readable_runs(self, actor: Actor) -> Q:
        """The condition on Run that holds for exactly the runs this actor may read."""

    def may_cancel(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may cancel a run of `requester` that it can read."""

    def may_fork(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may start forks of a run of `requester` that it can read."""

    def may_control(self, actor: Actor, requester: str) -> bool:
        """Whether the actor may pause, resume and write to a run of `requester` that it can read."""

    def require_agents(self, actor: Actor) -> None:
        """Raise Forbidden unless the actor may read agents, with their tools and schemas."""

    def reads_continuations(self, actor: Actor) -> bool:
        """Whether the actor may read the continuation of a run that it can read."""


# What agents are


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """What the engine freezes of an agent when a frame opens. Digests are `sha256:<hex>`.

    `budget` is what one activation may use with all below it; `rates` are what its model charges, None if
    nobody knows.
    """

    name: str
    fingerprint: str
    prompt: str
    plan: tuple[str, ...] | None
    model: ModelTerms = MODEL_TERMS
    compaction: CompactionTerms | None = None
    budget: Budget | None = None
    rates: Rates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What the code says of one proposed call: how risky it is and how to put it in a sentence.

    `schema` is the JSON Schema of the arguments, `schema_digest` its digest; `deadline` is in seconds;
    `delegate` names the sub-agent when the call is a delegation; `gated` asks for a person whatever policy says.
    `result_schema` is the JSON Schema of what the tool returns, None if it does not say. `expires_in` is how
    many seconds people have to decide, None for the installation's default. `waits` says that the call is a
    wait of the engine's: for the `moment` in its arguments, or for an `event` that contains `match`, up to `until`.
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
    waits: Literal["", "time", "event"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """How this process's agent differs from the version that a frame was opened for.

    `older` says that the frame's version came after this process's. `writes` are tools that have become writes.
    """

    agent: AgentFacts
    changes: tuple[Change, ...]
    older: bool = False
    writes: tuple[str, ...] = ()

    @property
    def asks(self) -> bool:
        """Whether a person must agree before the frame goes on under this version."""
        return any(change.asks for change in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBoundary:
    """Where a frame stands before a model call: `turn` replies behind it, `seconds` since it began or last
    went on from a hold; `messages` as a ModelRequest has them."""

    agent: str
    turn: int
    seconds: float
    messages: tuple[dict[str, Any], ...]


class UnknownAgent(RequestError):
    """This process has no agent of that name."""

    status, code, field = 422, "invalid", "agent"

    @property
    def detail(self) -> str:
        """What a person reads."""
        return "There is no agent of this name."


class CallRejected(Exception):
    """A proposed call cannot be made: unknown tool or arguments that break its schema; the model is told."""


class InvalidInput(RequestError):
    """A run's input breaks the agent's input schema; `field` is a dotted path. `others` lists further errors."""

    status, code = 422, "invalid"
    field: str

    def __init__(self, field: str, detail: str, others: Sequence["InvalidInput"] = ()) -> None:
        self.field = field
        self.others = tuple(others)
        more = [{"field": one.field, "detail": one.detail} for one in others]
        super().__init__(detail, **({"others": more} if more else {}))

    @property
    def all_of_it(self) -> str:
        """All errors, each with its place, in one line."""
        return "; ".join(f"{one.field}: {one.detail}" for one in (self, *self.others))


class AgentCatalogue(Protocol):
    """The published agents, as the web knows them without importing author code; implemented by agents."""

    def check_input(self, agent: str, value: Any) -> None:
        """Raise UnknownAgent or InvalidInput unless `value` may start `agent`."""

    def schema(self, agent: str) -> Expression:
        """Return the expression of the schema of an agent's input, for `check_read`."""

    def check_read(self, agent: str, schema: Any, value: Any) -> None:
        """Raise as `check_input` does, by the value that `schema` had."""

    def is_newer(self, agent: str, fingerprint: str, *, than: Collection[str]) -> bool:
        """Whether this version of an agent was published after all of those."""

    def knows(self, agent: str) -> bool:
        """Whether an agent of that name was ever published."""

    def names(self) -> list[str]:
        """Of every agent that was ever published, in order."""


# What agents do


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
    first of the agent's; `ticket` is what Braked said, 0 for nothing.

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
    ticket: int = 0
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
class ModelFault:
    """`again` says that another attempt can help, `after` how many seconds the provider asked to wait.

    `model` is the one that failed, `other` the agent's next, empty for none. `partial` is the text that
    came before it broke off. `said` is the provider's error text, for admins.
    """

    error: str
    again: bool = False
    after: float | None = None
    blame: Blame = Blame.PROVIDER
    model: str = ""
    other: str = ""
    partial: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Braked:
    """The model was not asked: its provider wants fewer requests. It may be, with this ticket, at that time."""

    model: str
    until: datetime
    ticket: int


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
    blame: Blame = Blame.PROVIDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Anything else: the tool may or may not have had its effect."""

    error: str
    blame: Blame = Blame.TOOL


Abort = Callable[[], None]
Outcome = ModelAnswer | ModelFault | Braked | ToolResult | ToolFault | Unknown


class EffectHandler(Protocol):
    """Does what the core plans; implemented by agents, in workers only."""

    def agent(self, name: str) -> AgentFacts:
        """Raise UnknownAgent if this process has no such agent."""

    def fingerprints(self) -> Mapping[str, str]:
        """The version of every agent that this process has, by name."""

    def skew(self, name: str, fingerprint: str) -> VersionChange | None:
        """How this process's agent differs from that version of it; None if it is the same.

        Raises UnknownAgent.
        """

    def receive(self, agent: str, value: Any) -> Any:
        """Read an input with the agent's own code and return it as JSON, with defaults. Raise InvalidInput."""

    def instruct(self, agent: str, given: Any) -> str:
        """Make the agent's instructions for this input; return an empty text if they are the same for every input.

        Raise InvalidInput if the author's function fails.
        """

    def describe(self, *, agent: str, tool: str, args: Any) -> CallFacts:
        """Pure and quick. Raise CallRejected if the call cannot be made."""

    def hold(self, position: "TurnBoundary") -> str:
        """Why the agent is to stop before its next model call, in a sentence; empty to go on. Quick."""

    def perform(self, request: ToolRequest) -> Outcome:
        """Do it, from any thread. Never raises: whatever happens is an outcome."""

    def begin(self, request: ModelRequest, deliver: Callable[[Outcome], None]) -> Abort:
        """Ask the model, and return at once. `deliver` gets the outcome, from any thread, once and in any case.

        What is returned ends the call early, from any thread: its outcome is then a fault with what came so far.
        """


# Who decides


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPicture:
    """The frozen picture of one call behind a gate: exactly what will run, or what is in doubt.

    `path` goes from the root agent over sub-agents to the tool; `action_digest` binds it all.
    `expires_at` is when time itself decides. `not_before` is when a call in doubt may run again:
    after its intent, its deadline and a lease, nothing of the first start can be under way.
    `origin` lists the people in the run's origin, who cannot decide in it.

    Of a halt (a hold, a limit, a changed version) `call` and `tool` are empty, `path` ends at the agent,
    `sentence` says why it stopped and `args` what people need to know to decide.
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
    origin: tuple[str, ...] = ()
    expires_at: datetime | None = None
    not_before: datetime | None = None
    result_schema: dict[str, Any] | None = None


class NotConfirmed(Exception):
    """A decision does not match what was decided, or nobody signed it: the run is parked."""


class ApprovalVoid(Exception):
    """The approval is genuine, but does not hold any more: people are asked again.

    The decider lost the right, or has steered the run since.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a statement of the engine's: `INSERT … SELECT … FROM run`, empty if that writes nothing.

    `parameters` are named so that they meet none of another part. `overtaken` is the constraint whose violation
    says that another transaction was faster: then the step is drafted again. A `required` part returns the row
    that it has to write.
    """

    name: str
    sql: str
    parameters: dict[str, object]
    overtaken: str | None = None
    required: bool = False


class Gatekeeper(Protocol):
    """Says which calls need a person and keeps their requests; implemented by approvals."""

    def gates(self, facts: CallFacts) -> bool:
        """Whether this call waits for a person. Policy may be stricter than the tool, never laxer."""

    def open(
        self,
        connection: psycopg.Connection[Any],
        pictures: Sequence[ActionPicture],
        *,
        origin: Collection[str],
    ) -> tuple[Part, ...]:
        """What the step that opens these gates of one run has to write: a request per picture, and its audit.

        Nothing is written here. `origin` are the people the run comes from, as its row says.
        """

    def vouch(self, *, gate: UUID, decision: Decision) -> None:
        """When a decision is taken up: raise NotConfirmed unless the web signed exactly this one.

        A decision by time itself (`expire`) has no signature. Raises KeyMissing.
        """

    def confirm(
        self,
        *,
        gate: UUID,
        action_digest: str,
        origin: Collection[str] = (),
        decision: Decision | None = None,
    ) -> None:
        """Just before an approved call starts: return if exactly this action was approved, and still is.

        A `decision` that is taken up with the start is vouched for by the same look.
        `origin` is the run's origin by its journal: an approval by one of these people does not count.
        Raises NotConfirmed, ApprovalVoid, or KeyMissing.
        """

    def expire(self, gate: UUID) -> None:
        """Settle the gate by time, in a transaction of its own, unless somebody was faster."""

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        """Cancel what is still pending at these gates, inside the caller's transaction.

        `actor` cancels the run and is audited, also if it waits at no gate; None is the engine itself.
        """

    def join(self, *, run: UUID, person: str) -> None:
        """Exclude a person who steers the run from deciding in it, inside the caller's transaction."""

    def note(self, *, run: UUID, actor: Actor, act: str, detail: dict[str, str | None]) -> None:
        """Write the audit row of what somebody did to a run, inside the caller's transaction."""

    def forget(self, *, run: UUID, at: datetime, head: str) -> None:
        """Remove what people were shown of the calls of a run that is over, in the caller's transaction.

        Decisions, digests and signatures stay. It is audited, with `head`, the MAC of the journal's last entry.
        """

    def problem_of(self, run: UUID) -> str | None:
        """What is wrong with the run's audit rows, in a sentence; None if they hold. Raises KeyMissing."""

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
