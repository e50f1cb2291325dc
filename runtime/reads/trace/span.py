"""One span of a run: work or waiting with a start, an end and a result."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from uuid import UUID

from runtime.core.run import events as e
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.verdicts import GATES, VERDICTS, select_verdict_rule
from runtime.reads.labels import format_agent_title
from runtime.reads.redaction import redact

TOOLS_NAMED = 3  # in the label of a model call


class SpanKind(StrEnum):
    """The kind of a span."""

    QUEUE = "queue"  # the run waits for its first worker
    AGENT = "agent"  # a frame, from its opening to its end
    MODEL = "model"  # one attempt at one model call
    TOOL = "tool"  # one attempt at one tool call, or a call that was never started
    PERSON = "person"  # a gate
    PAUSE = "pause"  # a person paused the run
    MESSAGE = "message"  # a message of a person, until it is delivered
    WAIT = "wait"  # the time between two attempts
    AWAIT = "await"  # a call that waits for a time or an event


class SpanResult(StrEnum):
    """The result of a span."""

    OPEN = "open"  # still running
    DONE = "done"
    BAD = "bad"
    OVER = "over"  # ended, neither good nor bad


class SpanState(Enum):
    """The state of a span with its label and its result. Pages read the label, code compares the members."""

    def __init__(self, label: str, result: SpanResult) -> None:
        self.label = label
        self.result = result

    QUEUED = "waits for a worker", SpanResult.OPEN
    CLAIMED = "waited for a worker", SpanResult.OVER

    AT_WORK = "in progress", SpanResult.OPEN
    ANSWERED = "answered", SpanResult.DONE
    FAILED = "failed", SpanResult.BAD
    EXPORTED = "exported", SpanResult.OVER
    CANCELLED = "cancelled", SpanResult.OVER
    WITH_RUN = "ended with the run", SpanResult.OVER
    NEW_VERSION = "continued under another version", SpanResult.OVER

    ASKED = "waiting for a reply", SpanResult.OPEN
    REPLIED = "", SpanResult.DONE  # the words are the number of its calls
    COMPACTED = "summarised earlier messages", SpanResult.DONE
    NO_REPLY = "no reply", SpanResult.BAD
    NEXT_MODEL = "no reply, the next model is called", SpanResult.BAD
    CUT_OFF = "cut off by a message", SpanResult.OVER
    WORKER_LOST = "its worker was lost", SpanResult.BAD

    NOT_CHECKED = "queued", SpanResult.OPEN
    TO_START = "about to start", SpanResult.OPEN
    RECORDED = (
        "recorded earlier",
        SpanResult.OPEN,
    )  # in the original of a fork, or in a removed entry
    NOT_STARTED = "not started: the run was ended first", SpanResult.OPEN
    STARTED = "under way", SpanResult.OPEN
    DONE = "done", SpanResult.DONE
    REFUSED = "refused, it cannot be made", SpanResult.BAD
    FAILED_ONCE = "failed, tried again", SpanResult.BAD
    OUTCOME_LOST = "its outcome was lost", SpanResult.BAD
    LATE_DONE = "settled by its late outcome: done", SpanResult.DONE
    LATE_FAILED = "settled by its late outcome: failed", SpanResult.BAD

    BACKING_OFF = "tries again at", SpanResult.OPEN
    BACKED_OFF = "waited before the next attempt", SpanResult.OVER
    RATE_LIMITED = "rate limited, next request at", SpanResult.OPEN
    WAS_RATE_LIMITED = "waited for the rate limit", SpanResult.OVER

    AWAITS_EVENT = "waits for an event until", SpanResult.OPEN
    AWAITS_TIME = "waits until", SpanResult.OPEN
    EVENT_CAME = "its event came", SpanResult.DONE
    TIME_CAME = "its time came", SpanResult.OVER
    NOTHING_TO_AWAIT = "there is nothing to wait for", SpanResult.BAD

    PAUSED = "paused by", SpanResult.OPEN
    RESUMED = "paused by", SpanResult.OVER
    UNDELIVERED = "queued, from", SpanResult.OPEN
    DELIVERED = "delivered, from", SpanResult.OVER
    NOT_DELIVERED = "not delivered, from", SpanResult.OVER

    # The words of these depend on the gate or its verdict.
    GATE_OPEN = "waits for a person", SpanResult.OPEN
    DECISION_PENDING = "decided, the worker applies it shortly", SpanResult.OPEN
    AGREED = "agreed", SpanResult.DONE
    DISAGREED = "disagreed", SpanResult.BAD
    GATE_CLOSED = "the run was ended first", SpanResult.OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """Facts about a gate that are not in the journal: its request, and the time of a decision not yet applied."""

    decided_at: datetime | None
    approval: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A place on the axis, in percent, as attributes of an SVG element."""

    x: str
    width: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens of a model call, and its cost in micro-units of US dollars, None if its price is unknown."""

    input: int
    output: int
    cost: int | None

    def add_usage(self, other: "Usage | None") -> "Usage":
        """Add another one; the cost is unknown if one of them is."""
        if other is None:
            return self
        is_priced = self.cost is not None and other.cost is not None
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cost=(self.cost or 0) + (other.cost or 0) if is_priced else None,
        )


@dataclass(slots=True, kw_only=True)
class Span:
    """One span. `step` groups spans: all attempts at one call, and its gates, are one step.

    `start` is None for a call that never began; `end` is None while it runs. `by`, or the time `until`, follows
    `label`. `tools` are those that a model called, `waiting` says what an agent waits for. `error` is why an attempt
    had no result, `reason` the text of a person. `model` is the called model, `partial` its interrupted reply,
    `provider_error` the error text of its provider, for admins. `usage` is that of its reply.
    The timeline sets the last five; `fact` tells the step from others of its name.
    """

    kind: SpanKind
    step: str
    name: str
    depth: int
    start: datetime | None
    state: SpanState
    end: datetime | None = None
    attempt: int = 0
    tools: tuple[str, ...] = ()
    waiting: str = ""
    by: str = ""
    error: str = ""
    reason: str = ""
    gate: UUID | None = None
    gate_kind: GateKind | None = None
    verdict: Verdict | None = None
    position: int = 0
    approval: UUID | None = None
    until: datetime | None = None
    model: str = ""
    partial: str = ""
    provider_error: str = ""
    usage: Usage | None = None
    fact: str = ""
    id: str = ""
    offset: timedelta | None = None
    lasted: timedelta | None = None
    bar: Bar | None = None

    @property
    def label(self) -> str:
        """The state in words; a name or a time may follow."""
        match self.state:
            case SpanState.REPLIED | SpanState.ANSWERED if self.kind is SpanKind.MODEL and self.by:
                return "reply given by"
            case SpanState.REPLIED:
                numbers = Counter(map(format_agent_title, self.tools))
                names = [name if n == 1 else f"{name} {n} times" for name, n in numbers.items()]
                unnamed = len(names) - TOOLS_NAMED
                ending = f" and {unnamed} more" if unnamed > 0 else ""
                return f"calls {', '.join(names[:TOOLS_NAMED])}{ending}"
            case SpanState.AT_WORK if self.waiting:
                return self.waiting
            case SpanState.GATE_OPEN if self.gate_kind:
                return GATES[self.gate_kind].open
            case SpanState.GATE_CLOSED:
                return GATES[self.gate_kind or GateKind.APPROVAL].closed
            case SpanState.AGREED | SpanState.DISAGREED if self.verdict:
                return select_verdict_rule(self.gate_kind, self.verdict).past
            case _:
                return self.state.label

    @property
    def words(self) -> str:
        """All texts that a search looks at."""
        name = f"{self.name}\n{self.name.replace('_', ' ')}"  # pages show it in words
        texts = (name, self.fact, self.label, self.by, self.error, self.reason, self.model)
        return "\n".join(texts)

    @property
    def turn(self) -> str:
        """The number of the turn of a model call, as its step names it."""
        return self.step.rpartition("/m")[2]

    @property
    def result(self) -> SpanResult:
        """The result of the state."""
        return self.state.result

    @property
    def provider(self) -> str:
        """The called model, empty for a script."""
        return "" if self.model.startswith("scripted:") else self.model

    @property
    def for_people(self) -> bool:
        """Whether the span is a gate."""
        return self.kind is SpanKind.PERSON

    def finish(
        self,
        at: datetime,
        state: SpanState,
        *,
        error: str = "",
        model: str = "",
        partial: str = "",
        provider_error: str = "",
        tools: tuple[str, ...] = (),
        usage: Usage | None = None,
    ) -> None:
        """End the span, unless it has ended before."""
        if self.end is None:
            self.end, self.state, self.until = at, state, None
            self.error, self.model, self.partial = redact(error), model, redact(partial)
            self.provider_error, self.tools, self.usage = redact(provider_error), tools, usage

    def open_gate(self, gate: UUID, kind: GateKind, position: int, facts: GateFacts | None) -> None:
        """Describe an opened gate with this span."""
        self.gate, self.gate_kind, self.position = gate, kind, position
        self.take_facts(facts)

    def take_facts(self, facts: GateFacts | None) -> None:
        """Take the facts of the gate, until the entry of its decision replaces them."""
        if facts is not None and self.state in (SpanState.GATE_OPEN, SpanState.DECISION_PENDING):
            is_open = facts.decided_at is None
            self.approval, self.end = facts.approval, facts.decided_at
            self.state = SpanState.GATE_OPEN if is_open else SpanState.DECISION_PENDING

    def decide_gate(self, event: e.GateDecided, at: datetime, facts: GateFacts | None) -> None:
        """End the gate with the decision, at the time when the person made it."""
        self.end = (facts.decided_at if facts else None) or at
        self.state = (
            SpanState.AGREED
            if VERDICTS[event.verdict].status in ("approved", "answered")
            else SpanState.DISAGREED
        )
        self.by, self.verdict, self.reason = event.by, event.verdict, redact(event.reason)

    def close_gate(self, event: e.GateClosed, at: datetime) -> None:
        """End the gate, which was closed without a decision."""
        self.end, self.state, self.reason = at, SpanState.GATE_CLOSED, redact(event.reason)


@dataclass(slots=True, kw_only=True)
class InquiryRecord:
    """One inquiry, changed only by the trace. It waits while it has neither an answer nor an error.

    `at` is None until a worker has received it; `answered_at` is also the time of a failure. `sealed` is the answer as
    stored: an agent that holds its answers has it sealed.
    """

    id: UUID
    gate: UUID
    by: str
    text: str
    at: datetime | None = None
    answer: str = ""
    sealed: str = ""
    error: str = ""
    answered_at: datetime | None = None

    @property
    def waits(self) -> bool:
        """Whether the agent has not answered yet."""
        return not self.answer and not self.error
