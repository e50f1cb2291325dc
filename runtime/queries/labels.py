"""The texts of effect classes, calls, gates, decisions and messages on pages."""

from typing import Literal

from runtime.core.continuation import CallState
from runtime.core.enums import FRAME_GATES, EffectClass, GateKind, Verdict

# A short name, and the effect of a worker's death during a call.
EFFECTS = {
    EffectClass.READ: ("only reads", "Only reads: repeated after a crash."),
    EffectClass.IDEMPOTENT: (
        "can be repeated",
        "Safe to retry: takes effect only once, even after a crash.",
    ),
    EffectClass.TRANSACTIONAL: (
        "all or nothing",
        "Commits together with the run's journal or not at all. Repeated after a crash.",
    ),
    EffectClass.WRITE: (
        "happens once",
        "Not retried automatically. After a crash a person is asked whether it happened.",
    ),
}

MessageKind = Literal[
    "input",
    "text",
    "call",
    "decision",
    "result",
    "fault",
    "late",
    "retry",
    "release",
    "frame_gate",
    "summary",
    "instructions",
    "message",
    "review",
    "question",
    "answer",
]

MESSAGES: dict[MessageKind, str] = {
    "input": "given by",
    "text": "written by",
    "call": "requested by",
    "decision": "decided by",
    "result": "result of",
    "fault": "error of",
    "late": "late outcome of",
    "retry": "no result from",
    "summary": "earlier messages summarised by",
    "instructions": "instructions made from the input of",
    "release": "another version of",
    "frame_gate": "stopped:",
    "message": "message from",
    "review": "message from the reviewer",
    "question": "question of",
    "answer": "answer to a question by",
}

CALLS = {
    CallState.PROPOSED: "proposed, not checked yet",
    CallState.ADMITTED: "about to start",
    CallState.GATED: "waiting for a person",
    CallState.REFUSED: "refused, it cannot be made",
    CallState.DENIED: "denied, never started",
    CallState.STARTED: "started",
    CallState.RETRYING: "will be tried again",
    CallState.WAITING: "waits",
    CallState.DELEGATED: "waiting for a sub-agent",
    CallState.RETURNED: "done",
    CallState.FAILED: "failed",
    CallState.UNKNOWN: "in doubt: started, outcome unknown",
    CallState.CLOSED: "not started: the run was ended first",
}

OPEN_GATES = {
    GateKind.APPROVAL: "waits for a person to decide",
    GateKind.QUESTION: "waits for a person to answer",
    GateKind.IN_DOUBT: "in doubt: waits for a person to resolve it",
    GateKind.HOLD: "stopped: waits for a person to continue it",
    GateKind.LIMIT: "at its limit: waits for a person to grant more",
    GateKind.VERSION: "changed: waits for a person to continue it",
}
CLOSED_GATES = {
    GateKind.APPROVAL: "not started: the run was ended first",
    GateKind.QUESTION: "not answered: the run was ended first",
    GateKind.IN_DOUBT: "in doubt: the run was ended first",
    **dict.fromkeys(FRAME_GATES, "the run was ended first"),
}

# The name of the reviewer follows, if there is one.
VERDICTS = {
    Verdict.APPROVE: "approved by",
    Verdict.DENY: "denied by",
    Verdict.REQUEST_CHANGES: "changes requested by",
    Verdict.EXPIRE: "expired without a decision",
    Verdict.ANSWER: "answered instead by",
    Verdict.EDIT: "approved with changes by",
    Verdict.HAPPENED: "reported as done by",
    Verdict.RUN_AGAIN: "to run again, approved by",
    Verdict.GIVE_UP: "given up by",
    Verdict.CONTINUE: "continued by",
    Verdict.STOP: "stopped by",
}
# The answer to a question, in place of both texts for an answer.
ANSWERED_BY, ANSWERED = "answered by", "Answered"
# The same in a message, with the tool or the agent after it.
DECISIONS = {
    Verdict.APPROVE: "Approved",
    Verdict.DENY: "Denied",
    Verdict.REQUEST_CHANGES: "Requested changes to",
    Verdict.EXPIRE: "Expired without a decision:",
    Verdict.ANSWER: "Answered instead of",
    Verdict.EDIT: "Approved with changes:",
    Verdict.HAPPENED: "Reported the outcome of",
    Verdict.RUN_AGAIN: "Approved to run again",
    Verdict.GIVE_UP: "Gave up",
    Verdict.CONTINUE: "Continued",
    Verdict.STOP: "Stopped",
}


def verdict_text(verdict: Verdict, kind: GateKind | None) -> str:
    """Return the words for a verdict at a gate; the name of the reviewer follows, if there is one."""
    answered = kind is GateKind.QUESTION and verdict is Verdict.ANSWER
    return ANSWERED_BY if answered else VERDICTS[verdict]


def decision_text(verdict: Verdict, kind: GateKind | None) -> str:
    """Return the words for a verdict in a message; the tool or the agent follows."""
    answered = kind is GateKind.QUESTION and verdict is Verdict.ANSWER
    return ANSWERED if answered else DECISIONS[verdict]


def effect_texts(effect: str) -> tuple[str, str]:
    """Return the short name of an effect class and its consequence; the class itself if it is unknown."""
    return EFFECTS[EffectClass(effect)] if effect in tuple(EffectClass) else (effect, effect)
