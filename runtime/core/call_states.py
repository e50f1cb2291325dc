"""Lists the states of a call, and what each one means. A new state is one more member and one more row."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class CallState(StrEnum):
    """The states of a call, from its proposal to its result."""

    PROPOSED = "proposed"  # the model proposed it; not yet checked
    ADMITTED = "admitted"  # it may start
    GATED = "gated"  # a person must approve it first
    REFUSED = "refused"  # it cannot be made: unknown tool, or invalid arguments
    DENIED = "denied"  # a person denied it, or its approval expired
    STARTED = "started"  # an attempt is under way, or was when its worker died
    RETRYING = "retrying"  # an attempt ended without a result; another one follows
    WAITING = "waiting"  # it only waits for a time or an external event
    DELEGATED = "delegated"  # a child frame works on it
    RETURNED = "returned"  # it has a result
    FAILED = "failed"  # it has an error
    UNKNOWN = "unknown"  # in doubt: its outcome was lost
    CLOSED = "closed"  # the run ended, or its gate was closed, before it had a result


class Effect(StrEnum):
    """Whether a call that changes something outside the run may have done so."""

    NO = "no"
    IF_TRIED = "if_tried"  # people may be asked between two attempts
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStateRule:
    """The rules of one state.

    `label` follows the name of the call on pages. `is_settled`: its model can read the outcome. `is_to_come`: an
    attempt, a decision or a child frame comes first. `effect`: whether it may have changed something outside the run.
    """

    label: str
    is_settled: bool = False
    is_to_come: bool = False
    effect: Effect = Effect.NO


CALL_STATES: Mapping[CallState, CallStateRule] = {
    CallState.PROPOSED: CallStateRule(label="proposed, not checked yet", is_to_come=True),
    CallState.ADMITTED: CallStateRule(label="about to start", is_to_come=True),
    CallState.GATED: CallStateRule(
        label="waiting for a person", is_to_come=True, effect=Effect.IF_TRIED
    ),
    CallState.REFUSED: CallStateRule(label="refused, it cannot be made", is_settled=True),
    CallState.DENIED: CallStateRule(
        label="denied, never started", is_settled=True, effect=Effect.IF_TRIED
    ),
    CallState.STARTED: CallStateRule(label="started", effect=Effect.POSSIBLE),
    CallState.RETRYING: CallStateRule(
        label="will be tried again", is_to_come=True, effect=Effect.IF_TRIED
    ),
    CallState.WAITING: CallStateRule(label="waits", is_to_come=True),
    CallState.DELEGATED: CallStateRule(label="waiting for a sub-agent", is_to_come=True),
    CallState.RETURNED: CallStateRule(label="done", is_settled=True, effect=Effect.POSSIBLE),
    CallState.FAILED: CallStateRule(label="failed", is_settled=True),
    CallState.UNKNOWN: CallStateRule(
        label="in doubt: started, outcome unknown", effect=Effect.POSSIBLE
    ),
    CallState.CLOSED: CallStateRule(
        label="not started: the run was ended first", effect=Effect.IF_TRIED
    ),
}

SETTLED = frozenset(state for state, rule in CALL_STATES.items() if rule.is_settled)
ENDED = SETTLED | {CallState.CLOSED}
# The call has not started since it was last proposed or decided.
NOT_STARTED = frozenset({CallState.PROPOSED, CallState.GATED, CallState.ADMITTED})
WAITS_FOR_PERSON = frozenset({CallState.GATED, CallState.UNKNOWN})
