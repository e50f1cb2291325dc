"""Says in words what an entry of a journal records, with the agents and the tool that each event is about."""

from collections.abc import Mapping

from runtime.core.run import events as e
from runtime.core.values.verdicts import GATES, words_at
from runtime.queries.journal import JournalLine
from runtime.queries.redaction import redact
from runtime.queries.transcript.transcript import Transcript

# The agents that lead to a frame or, with the tool, to a call, by the ids of both.
Paths = Mapping[tuple[str, str], tuple[str, ...]]

EVENTS: Mapping[str, str] = {
    "RunStarted": "run started",
    "FrameOpened": "agent started",
    "ModelReplied": "model replied",
    "Compacted": "earlier messages summarised",
    "MemorySummarised": "memory of earlier runs summed up",
    "ModelFailed": "model call failed",
    "CallAdmitted": "call admitted",
    "CallPreviewed": "call previewed",
    "CallRefused": "call refused",
    "GateOpened": "waits for a person",
    "GateDecided": "a person decided",
    "GateClosed": "closed without a decision",
    "ToolStarted": "call started",
    "ToolReturned": "call returned",
    "ToolFailed": "call failed",
    "OutcomeUnknown": "outcome lost",
    "OutcomeArrived": "late outcome arrived",
    "RetryScheduled": "another attempt scheduled",
    "WaitStarted": "wait began",
    "WaitEnded": "wait ended",
    "BudgetExceeded": "budget used up",
    "BudgetGranted": "more budget granted",
    "FrameClosed": "agent ended",
    "Completed": "run finished",
    "Failed": "run failed",
    "Retried": "failed run tried again",
    "Cancelling": "cancellation began",
    "Cancelled": "run cancelled",
    "AgentChanged": "continues under another version",
    "Forked": "forked from another run",
    "Exported": "run exported",
    "Imported": "run imported",
    "Paused": "run paused",
    "Resumed": "run resumed",
    "MessageReceived": "message received",
    "QuestionAsked": "inquiry received",
    "QuestionAnswered": "inquiry answered",
    "QuestionFailed": "inquiry not answered",
    "AnswerDropped": "answer not kept",
}


def texts_of(line: JournalLine, paths: Paths) -> tuple[str, ...]:
    """Describe each event of an entry."""
    if line.entry is None:
        return ("cannot be read",)
    return tuple(text_of(event, paths) for event in line.entry.events)


def text_of(event: e.Event, paths: Paths) -> str:
    """Describe an event, with its agents and tool: their ids, if the journal does not name them."""
    frame, call = (getattr(event, name, None) or "" for name in ("frame", "call"))
    if isinstance(event, e.FrameOpened):
        call = ""  # that of the parent
    known = paths.get((frame, call)) or tuple(part for part in (frame, call) if part)
    about = " › ".join(known)
    words = _words(event)
    return f"{words}: {about}" if about else words


def paths_of(transcript: Transcript) -> Paths:
    """Return the agents that lead to each frame, and to each call, which ends with its tool."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for frame in transcript.frames():  # a parent before its children
        above = found.get((frame.parent or "", ""), ()) if frame.parent is not None else ()
        found[frame.id, ""] = (*above, frame.agent)
        for call in frame.calls:
            found[frame.id, call.id] = (*above, frame.agent, call.tool)
    return found


def _words(event: e.Event) -> str:
    match event:
        case e.GateOpened():
            return GATES[event.kind].open
        case e.GateDecided():
            return f"{words_at(None, event.verdict).past} {redact(event.by)}".rstrip()
        case e.ModelReplied() if event.given_by:
            return f"reply given by {redact(event.given_by)} in the place of the model"
        case e.FrameClosed():
            return f"agent {event.outcome}"
        case e.Paused() | e.Resumed() | e.MessageReceived() | e.Retried():
            return f"{EVENTS[event.type]} by {redact(event.by)}".replace("received by", "from")
        case _:
            return EVENTS[event.type]
