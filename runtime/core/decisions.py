"""The closed vocabularies of the core: effect classes, gate kinds, verdicts and risks."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EffectClass(StrEnum):
    """What uncertainty about a call means; declared on the tool, frozen when the call is judged."""

    READ = "read"  # run again
    IDEMPOTENT = "idempotent"  # run again with the same idempotency key
    TRANSACTIONAL = "transactional"  # its writes commit with the journal entry, or not at all
    WRITE = "write"  # never again on its own: a loss opens an in-doubt gate


class Risk(StrEnum):
    """How much harm a call can do; declared on the tool, never by the model."""

    LOW = "low"  # easily undone, seen by few
    MEDIUM = "medium"  # undone with effort
    HIGH = "high"  # rights, money, or what cannot be undone


class Blame(StrEnum):
    """Whose fault it is that an attempt brought nothing; a retry policy may choose among them."""

    LIMIT = "limit"  # ours: the other side wants fewer requests
    PROVIDER = "provider"  # the other side's: it broke, or what it sent cannot be read
    NETWORK = "network"  # the way's: no connection, or a cut one
    TIME = "time"  # nobody's yet: no answer within the deadline
    TOOL = "tool"  # the tool's: it raised what says nothing
    WORKER = "worker"  # this worker's: it lacks a key
    SETUP = "setup"  # an administrator's: a wrong key, address or name of a model
    REQUEST = "request"  # the request's: asking again brings the same answer


class GateKind(StrEnum):
    """Why a run waits for somebody."""

    APPROVAL = "approval"  # a person must allow a call before it starts
    IN_DOUBT = "in_doubt"  # a call was started and its outcome was lost
    HOLD = "hold"  # the agent is to stop here and be looked at before it goes on
    LIMIT = "limit"  # the run has used up what it was given
    VERSION = "version"  # the agent is no longer the one that the frame was opened for


class Verdict(StrEnum):
    """The decision that settles a gate; which ones are possible depends on its kind."""

    APPROVE = "approve"  # approval: the call may start, once
    DENY = "deny"  # approval: the call never starts; the model hears the reason
    EXPIRE = "expire"  # approval: nobody decided in time, so the call never starts
    HAPPENED = "happened"  # in doubt: the call took effect; its result is reported by a person
    RUN_AGAIN = "run_again"  # in doubt: the call may start once more; a fresh approval
    GIVE_UP = "give_up"  # in doubt: the call counts as failed
    CONTINUE = "continue"  # hold, limit, version: the frame goes on
    STOP = "stop"  # hold, limit, version: the run ends


# What people may say at each kind of gate; only time says expire.
VERDICTS: dict[GateKind, tuple[Verdict, ...]] = {
    GateKind.APPROVAL: (Verdict.APPROVE, Verdict.DENY),
    GateKind.IN_DOUBT: (Verdict.HAPPENED, Verdict.RUN_AGAIN, Verdict.GIVE_UP),
    GateKind.HOLD: (Verdict.CONTINUE, Verdict.STOP),
    GateKind.LIMIT: (Verdict.CONTINUE, Verdict.STOP),
    GateKind.VERSION: (Verdict.CONTINUE, Verdict.STOP),
}

# The gates of a frame itself; the others are of one of its calls.
HALTS = frozenset({GateKind.HOLD, GateKind.LIMIT, GateKind.VERSION})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who said what about a gate. `by` is a person's name, or empty for time itself.

    `reason` is free text, required to deny; `result` is what a call that happened is said to have returned.
    """

    verdict: Verdict
    by: str
    reason: str = ""
    result: Any = None
