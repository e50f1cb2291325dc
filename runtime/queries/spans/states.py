"""Lists the kinds, states and results of spans, each state with its words on a page."""

from enum import Enum, StrEnum


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

    NOT_CHECKED = "proposed, not checked yet", SpanResult.OPEN
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
