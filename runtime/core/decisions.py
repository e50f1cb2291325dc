"""The closed vocabularies of the core: effect classes, gate kinds, verdicts and risks."""

from dataclasses import dataclass
from enum import StrEnum


class EffectClass(StrEnum):
    """What uncertainty about a call means; declared on the tool, frozen when the call is judged."""

    IDEMPOTENT = "idempotent"  # run again with the same idempotency key
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
    """The decision that closes an approval gate."""

    APPROVE = "approve"  # the call may start, once
    DENY = "deny"  # the call never starts; the model hears the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who said what about a gate. `by` is a person's name; `reason` is free text, required to deny."""

    verdict: Verdict
    by: str
    reason: str = ""
