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


class GateKind(StrEnum):
    """Why a run waits for somebody."""

    APPROVAL = "approval"  # a person must allow a call before it starts
    IN_DOUBT = "in_doubt"  # a call was started and its outcome was lost


class Verdict(StrEnum):
    """The decision that settles a gate; which ones are possible depends on its kind."""

    APPROVE = "approve"  # approval: the call may start, once
    DENY = "deny"  # approval: the call never starts; the model hears the reason
    EXPIRE = "expire"  # approval: nobody decided in time, so the call never starts
    HAPPENED = "happened"  # in doubt: the call took effect; its result is reported by a person
    RUN_AGAIN = "run_again"  # in doubt: the call may start once more; a fresh approval
    GIVE_UP = "give_up"  # in doubt: the call counts as failed


# What people may say at each kind of gate; only time says expire.
VERDICTS: dict[GateKind, tuple[Verdict, ...]] = {
    GateKind.APPROVAL: (Verdict.APPROVE, Verdict.DENY),
    GateKind.IN_DOUBT: (Verdict.HAPPENED, Verdict.RUN_AGAIN, Verdict.GIVE_UP),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who said what about a gate. `by` is a person's name, or empty for time itself.

    `reason` is free text, required to deny; `result` is what a call that happened is said to have returned.
    """

    verdict: Verdict
    by: str
    reason: str = ""
    result: Any = None
