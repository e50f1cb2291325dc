"""The events of a run, in the past tense. Only events change its state.

Times, ids and verdicts enter here, so replay needs no clock, no code and no policy.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from pydantic import Field

from runtime.core.values.budgets import Amount, BudgetLimits, Limit, Rates
from runtime.core.values.call_options import (
    MODEL_OPTIONS,
    CallOptions,
    CompactionOptions,
    ModelOptions,
)
from runtime.core.values.enums import CallPreview, Edit, GateKind, Verdict

RetryCause = Literal["error", "lost", "brake", "credential", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One call as the model proposed it. `args` is any JSON value; the admission checks it against the tool."""

    tool: str
    args: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """A result that is stored by its hash: `size` in bytes of JSON, `preview` its first characters.

    `outside` says that it was written to the object store.
    """

    digest: str
    size: int
    preview: str
    outside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPrompt:
    """The version of a prompt that a frame uses, with the digest of its text. Number 0 is the text in the code.

    `at` is the time whose versions in production the frame uses, and the frames that it opens.
    """

    name: str
    number: int
    digest: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceUse:
    """The use of an allowance that passed a call: use `number` of `of`. `by` are the people who made it."""

    id: UUID
    number: int
    of: int
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A text of an earlier run of the thread: a person's question, or its answer at the end.

    A `summary` is one that the agent of this run has made of such texts. `by` is that person, or the agent. The text
    is stored under `digest`, apart from the journal, so that it can be erased with the runs that it comes from.
    """

    run: UUID
    kind: Literal["asked", "answered", "summary"]
    by: str
    at: datetime
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A person or program started the run.

    Without a `budget` nothing is counted against limits.

    `business_key` is None in a run without one. `makers` are the people besides the requester who brought it about,
    such as those who changed the schedule that started it. They are in its origin.

    `thread` names the conversation that the run belongs to, and `memory` has the texts of it that the run remembers.
    With `memory_tokens` its model first sums them up, in so many tokens at most.
    """

    agent: str
    input: Any
    requester: str
    budget: BudgetLimits | None = None
    business_key: str | None = None
    makers: tuple[str, ...] = ()
    thread: str | None = None
    memory: tuple[Remembered, ...] = ()
    memory_tokens: int = 0
    type: Literal["RunStarted"] = "RunStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOpened:
    """An agent was activated. `plan` is its declared steps, None if it declares none; `call` is None for the root.

    `budget` is the agent's own; `rates` are the prices of its model, None if unknown. `instructions` is the text that
    a function of the agent or a prompt made of the input, empty if its instructions are a text. `prompt` is the digest
    of the instructions that the model gets, `pinned` the version of the prompt that they come from, None without one.
    With `item` it works on one item of a list.
    """

    frame: str
    agent: str
    fingerprint: str
    prompt: str
    plan: tuple[str, ...] | None
    input: Any
    parent: str | None = None
    call: str | None = None
    model: ModelOptions = MODEL_OPTIONS
    at: datetime | None = None
    compaction: CompactionOptions | None = None
    budget: BudgetLimits | None = None
    rates: Rates | None = None
    instructions: str = ""
    pinned: PinnedPrompt | None = None
    item: bool = False
    type: Literal["FrameOpened"] = "FrameOpened"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied:
    """A model replied. `reply` is the provider's message, opaque to the core; text, calls and usage are read from it.

    `model` is the agent's model that answered, as configured. `cost` is in micro-units of US dollars at the price of
    that day, None if unknown. `heard` counts the people's messages in the request that no model had received before.
    `output` is the result of an agent whose result is typed. With `output_kept` the reply leaves it out, and the
    frame's message has it instead. `given_by` is the person who gave the reply in a fork: then no model was called. At
    most `at_once` of the calls are open together, all of them if it is 0.
    """

    frame: str
    reply: Any
    text: str
    calls: tuple[Proposal, ...]
    usage: dict[str, int]
    model: str = ""
    cost: int | None = None
    heard: int = 0
    output: dict[str, Any] | None = None
    output_kept: bool = False
    given_by: str = ""
    at_once: int = 0
    type: Literal["ModelReplied"] = "ModelReplied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A summary replaced the messages of the frame from the second up to position `until`.

    `by` says whether the model or a function of the author wrote it. `usage`, `model` and `cost` belong to that
    reply.
    """

    frame: str
    until: int
    summary: str
    by: Literal["model", "author"]
    usage: dict[str, int]
    model: str = ""
    cost: int | None = None
    type: Literal["Compacted"] = "Compacted"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySummarised:
    """The model summed up what the run remembers of earlier runs. From now on the run remembers the summary instead.

    The text is stored under `digest`, apart from the journal, so that it can be erased with any run that it is about;
    `text` holds it until then. `usage`, `model` and `cost` belong to that reply.
    """

    frame: str
    at: datetime
    usage: dict[str, int]
    digest: str = ""
    text: str = ""
    model: str = ""
    cost: int | None = None
    type: Literal["MemorySummarised"] = "MemorySummarised"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed:
    """No model of the agent gave a usable reply.

    `partial` is the text received before an interruption, as evidence only.

    `said` is the provider's error text. It may quote the request, so only admins see it.
    """

    frame: str
    error: str
    model: str = ""
    partial: str = ""
    said: str = ""
    type: Literal["ModelFailed"] = "ModelFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAdmitted:
    """The call may start without a person."""

    frame: str
    call: str
    terms: CallOptions
    type: Literal["CallAdmitted"] = "CallAdmitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPreviewed:
    """A worker previewed the call. It does so before its gate opens, and again just before the call starts."""

    frame: str
    call: str
    preview: CallPreview
    type: Literal["CallPreviewed"] = "CallPreviewed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRefused:
    """The call cannot be made: its tool is unknown or its arguments are malformed. Its model receives the reason."""

    frame: str
    call: str
    reason: str
    type: Literal["CallRefused"] = "CallRefused"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOpened:
    """The run waits for a decision. `expires_at` is when it counts as denied, None for never.

    A gate of a frame has no call and no options; `reason` says why it opened and `at` when. `version` is the
    fingerprint under which the frame continues after a version gate.
    """

    gate: UUID
    kind: GateKind
    frame: str
    call: str
    terms: CallOptions | None
    expires_at: datetime | None = None
    reason: str = ""
    at: datetime | None = None
    version: str = ""
    type: Literal["GateOpened"] = "GateOpened"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecided:
    """A decision took effect. `call` is empty at the gate of a frame.

    `result` is the result or grant that came with the verdict. `stored` replaces it if it is too big for an event.
    With `stands` the denied action, or the one to be changed, is refused from now on. `edit` has the arguments of an
    approval with changes. `allowance` is the use of the allowance that approved the call: then no person was asked, and
    `by` is the person who confirmed the allowance. With `answer` the result is the answer of the frame, and kept whole.
    """

    gate: UUID
    frame: str
    call: str
    verdict: Verdict
    by: str
    reason: str
    result: Any = None
    stored: BlobRef | None = None
    stands: bool = False
    edit: Edit | None = None
    allowance: AllowanceUse | None = None
    answer: bool = False
    type: Literal["GateDecided"] = "GateDecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateClosed:
    """The gate closed without a decision. Its call, if it has one, ends without a result."""

    gate: UUID
    frame: str
    call: str
    reason: str
    type: Literal["GateClosed"] = "GateClosed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateExtended:
    """A person gave the people at an open gate more time: it expires at `until` instead of `before`."""

    gate: UUID
    frame: str
    call: str
    by: str
    reason: str
    before: datetime
    until: datetime
    type: Literal["GateExtended"] = "GateExtended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """The intent to make the call, committed before the call starts."""

    frame: str
    call: str
    attempt: int
    at: datetime
    type: Literal["ToolStarted"] = "ToolStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned:
    """The tool returned. `stored` replaces a result too large for an event, unless it is the frame's `answer`."""

    frame: str
    call: str
    attempt: int
    result: Any
    stored: BlobRef | None = None
    answer: bool = False
    type: Literal["ToolReturned"] = "ToolReturned"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFailed:
    """The call failed or was certainly not performed. Its model receives the error."""

    frame: str
    call: str
    attempt: int
    error: str
    type: Literal["ToolFailed"] = "ToolFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeUnknown:
    """The outcome of a started call was lost: it is in doubt."""

    frame: str
    call: str
    attempt: int
    error: str
    type: Literal["OutcomeUnknown"] = "OutcomeUnknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeArrived:
    """The outcome of a call in doubt arrived late.

    Its worker had lost the run, or its deadline had passed. The outcome settles `gate`, which is None if people were
    not asked yet. `result` is the call's result; `stored` replaces it if it is too big for an event. `error` is the
    call's error. `at` is when the outcome was recorded.
    """

    frame: str
    call: str
    attempt: int
    gate: UUID | None
    outcome: Literal["returned", "failed"]
    at: datetime
    result: Any = None
    stored: BlobRef | None = None
    error: str = ""
    type: Literal["OutcomeArrived"] = "OutcomeArrived"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """The attempt ended without a result. Another one follows at `until`, or at once.

    `call` is None for a model call. Then `model` is the one that gave no reply, and `instead` the next one once its
    attempts are used up. `partial` is the text received before an interruption, as evidence only; `said` is as in
    ModelFailed. A lost worker (`lost`) does not count as a failure of the call. Neither does an attempt delayed by
    the provider's rate limit (`brake`): `ticket` is its number in that queue. `since` is when the frame's model first
    gave no reply. `asks_at` is set once no model of the agent
    is left to call: at that time people are asked instead. `limited` says that the provider rejected or delays the call
    because of its rate limit. `tokens` is about how many tokens had come when the reply was cut off: then the
    next attempt learns of it, with `partial`. After a `credential` failure people must replace one before the call
    starts again. If a person's `message` cut the reply off, or its worker was lost, the
    next attempt follows at once. `usage` and `cost` count the unusable reply as far as its price is known.
    """

    frame: str
    call: str | None
    attempt: int
    cause: RetryCause
    error: str
    until: datetime | None = None
    model: str = ""
    instead: str = ""
    partial: str = ""
    said: str = ""
    ticket: int = 0
    since: datetime | None = None
    asks_at: datetime | None = None
    limited: bool = False
    tokens: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    cost: int | None = None
    type: Literal["RetryScheduled"] = "RetryScheduled"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStarted:
    """The call waits for an external event, or until a time.

    `match` is what the event's data must contain. `at` is when the instance that performs the call used its approval:
    from then on the call waits for the outcome.
    """

    frame: str
    call: str
    until: datetime
    event: str = ""
    match: Any = None
    at: datetime | None = None
    type: Literal["WaitStarted"] = "WaitStarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEnded:
    """A wait, or a pause before another attempt, ended. `again` tells them apart.

    A waiting call ends with `result`: its event arrived (`arrived`), its time passed (`timed_out`), or its run was
    ended first (`closed`). A wait that could not start, or a call whose instance reported a failure, ends with an error
    (`refused`). `by` is the sender of the event.
    """

    frame: str
    call: str | None
    outcome: Literal["again", "arrived", "timed_out", "refused", "closed"] = "again"
    result: Any = None
    by: str = ""
    type: Literal["WaitEnded"] = "WaitEnded"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetExceeded:
    """A limit is exhausted. It is the run's where `frame` is None, else the frame's. One `gate` opens for all of them.

    `used` is None for money if a price is not known.
    """

    gate: UUID
    frame: str | None
    limit: Limit
    used: Amount | None
    allowed: Amount
    at: datetime
    type: Literal["BudgetExceeded"] = "BudgetExceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGranted:
    """A person raised the exhausted limits by these amounts. None removes a limit."""

    gate: UUID
    by: str
    amounts: dict[Limit, Amount | None]
    type: Literal["BudgetGranted"] = "BudgetGranted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameClosed:
    """The agent of the frame finished. Its answer or error is the outcome of its parent's call.

    `content` is a text, or an object if the agent's result is typed.
    """

    frame: str
    outcome: Literal["answered", "failed"]
    content: Any
    type: Literal["FrameClosed"] = "FrameClosed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The root agent answered. `output` is a text, or an object if its result is typed."""

    output: Any
    type: Literal["Completed"] = "Completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The root agent could not answer."""

    error: str
    type: Literal["Failed"] = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """A person continued the failed run from where it failed."""

    by: str
    reason: str
    type: Literal["Retried"] = "Retried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelling:
    """The run is being cancelled: nothing new starts."""

    by: str
    reason: str
    type: Literal["Cancelling"] = "Cancelling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The run was cancelled and has ended."""

    reason: str
    type: Literal["Cancelled"] = "Cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChange:
    """One difference between two versions of an agent.

    `part` names it: `instructions`, `tool refund`, `tool refund: schema`. `before` and `after` are JSON values, None
    if absent. With `asks`, no frame continues before a person has agreed.
    """

    part: str
    before: Any
    after: Any
    asks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChanged:
    """The frame continues with another version of its agent.

    `before` and `fingerprint` are the digests of the two. `writes` are tools that have become writes: their running
    calls count as writes. `instructions` and `pinned` are as in FrameOpened. `by` is the admin whose decision on these
    two versions let it, empty if no person had to agree or a version gate was decided.
    """

    frame: str
    before: str
    fingerprint: str
    prompt: str
    changes: tuple[AgentChange, ...]
    writes: tuple[str, ...] = ()
    instructions: str = ""
    by: str = ""
    pinned: PinnedPrompt | None = None
    type: Literal["AgentChanged"] = "AgentChanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkChange:
    """The place that a person changed in a fork.

    It is an undelivered message by its `number`, part of a call, or the next reply of a frame's model.
    """

    kind: Literal["message", "result", "arguments", "reply"]
    frame: str = ""
    call: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The run starts as a copy of run `of` after entry `position`, without its permissions.

    `state` is that copy as JSON (see runtime.core.run.forks), with what the person `by` changed in it, None for an
    exact copy.
    """

    of: UUID
    position: int
    by: str
    state: Any
    change: ForkChange | None = None
    type: Literal["Forked"] = "Forked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The run was exported to another installation, and ends here."""

    by: str
    type: Literal["Exported"] = "Exported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The run came from another installation and continues here without its permissions.

    Its earlier entries are signed there: `manifest` with the key `key` (hex of Ed25519).
    """

    by: str
    manifest: str
    key: str
    signature: str
    type: Literal["Imported"] = "Imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A person paused the run. Nothing new starts until it is resumed. `reason` may be empty."""

    by: str
    reason: str
    type: Literal["Paused"] = "Paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A person resumed the paused run. `reason` may be empty."""

    by: str
    reason: str = ""
    type: Literal["Resumed"] = "Resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A person wrote to the run's first agent. Its next model call has the message.

    `reviewer` says that they wrote from a request that they may decide, and as its rule allows. With `cuts` the reply
    that the model is giving is cut off: the next call, with the message, replaces it.
    """

    by: str
    text: str
    reviewer: bool = False
    cuts: bool = False
    type: Literal["MessageReceived"] = "MessageReceived"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked:
    """A person asked the agent about the call at this gate. The gate stays open.

    The stored word is the older one.
    """

    frame: str
    call: str
    gate: UUID
    question: UUID
    by: str
    text: str
    type: Literal["QuestionAsked"] = "QuestionAsked"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered:
    """The model answered the inquiry outside of its conversation. `usage`, `model` and `cost` are as in ModelReplied.

    `text` is the beginning of a longer answer.
    """

    frame: str
    call: str
    question: UUID
    text: str
    usage: dict[str, int]
    model: str = ""
    cost: int | None = None
    type: Literal["QuestionAnswered"] = "QuestionAnswered"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFailed:
    """The inquiry has no answer. The model gave none, or could not be called."""

    frame: str
    call: str
    question: UUID
    error: str
    type: Literal["QuestionFailed"] = "QuestionFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerDropped:
    """The model's answer to an inquiry is not kept. It was paid for, but cannot be used, or came after the decision.

    `usage`, `model` and `cost` are as in ModelReplied.
    """

    frame: str
    question: UUID
    usage: dict[str, int]
    model: str = ""
    cost: int | None = None
    type: Literal["AnswerDropped"] = "AnswerDropped"


FrameEvent = ModelReplied | Compacted | MemorySummarised | ModelFailed | AgentChanged | FrameClosed
CallEvent = (
    CallPreviewed
    | CallAdmitted
    | CallRefused
    | GateOpened
    | GateDecided
    | GateClosed
    | ToolStarted
    | ToolReturned
    | ToolFailed
    | OutcomeUnknown
    | OutcomeArrived
)
WaitEvent = RetryScheduled | WaitStarted | WaitEnded
InquiryEvent = QuestionAsked | QuestionAnswered | QuestionFailed | AnswerDropped
TravelEvent = Forked | Exported | Imported
PaceEvent = Paused | Resumed
RunEvent = (
    RunStarted
    | Completed
    | Failed
    | Retried
    | Cancelling
    | Cancelled
    | PaceEvent
    | MessageReceived
    | GateExtended
    | TravelEvent
)
BudgetEvent = BudgetExceeded | BudgetGranted
Event = RunEvent | FrameOpened | FrameEvent | CallEvent | InquiryEvent | WaitEvent | BudgetEvent

TaggedEvent = Annotated[Event, Field(discriminator="type")]
EVENT_TYPES: tuple[type, ...] = get_args(Event)
