"""Lists the closed vocabularies of the core, with the rules of effect classes and of states of a call.

A new effect class or state is one more member and one more row. `verdicts` has the rows of gates and verdicts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class EffectClass(StrEnum):
    """How a call without a known outcome is treated; declared on the tool, fixed at admission."""

    READ = "read"  # it changes nothing: a lost call is repeated
    IDEMPOTENT = "idempotent"  # a lost call is repeated with the same idempotency key
    TRANSACTIONAL = "transactional"  # its writes commit with the entry, or not at all
    WRITE = "write"  # a lost call is never repeated: an in-doubt gate opens


class Risk(StrEnum):
    """How much harm a call can do; declared on the tool, never by the model."""

    LOW = "low"  # easily undone, seen by few
    MEDIUM = "medium"  # undone with effort
    HIGH = "high"  # rights, money, or effects that cannot be undone


RISKS = tuple(Risk)  # from the lowest to the highest


class FailureCause(StrEnum):
    """Why an attempt had no result; a retry policy may choose among the causes."""

    LIMIT = "limit"  # the other side wants fewer requests (429, 529)
    PROVIDER = "provider"  # the other side failed
    REPLY = "reply"  # the model's reply is cut by its limit, filtered, refused, empty, too large or not readable
    NETWORK = "network"  # no connection, or the connection was lost
    TIME = "time"  # no answer before the deadline
    TOOL = "tool"  # the tool raised another exception
    WORKER = "worker"  # a key is missing in the ring of this worker
    SETUP = "setup"  # a wrong key, address or model name, or an exhausted quota
    REQUEST = "request"  # the request is wrong: it is never sent again


class GateKind(StrEnum):
    """Why a run waits for a person."""

    APPROVAL = "approval"  # a person must allow a call before it starts
    QUESTION = "question"  # a call asks a person for a value, and is never made
    IN_DOUBT = "in_doubt"  # a call was started and its outcome was lost
    HOLD = "hold"  # a rule of the agent, a failed check or a repeated reply stopped it
    LIMIT = "limit"  # a budget is exhausted
    VERSION = "version"  # the agent has changed since the frame opened

    @property
    def is_approval(self) -> bool:
        """Whether a person allows a call that has not started."""
        return self is GateKind.APPROVAL

    @property
    def is_question(self) -> bool:
        """Whether a person gives a value."""
        return self is GateKind.QUESTION

    @property
    def is_in_doubt(self) -> bool:
        """Whether the outcome of a started call is unknown."""
        return self is GateKind.IN_DOUBT

    @property
    def is_limit(self) -> bool:
        """Whether it blocks the whole run until a person grants more."""
        return self is GateKind.LIMIT


class Verdict(StrEnum):
    """The decision that settles a gate. `verdicts` lists where each is possible, and what follows."""

    APPROVE = "approve"  # the call may start, once
    DENY = "deny"  # the call never starts, and its model receives the reason
    REQUEST_CHANGES = "request_changes"  # the call never starts, and its model reads the changes
    ANSWER = "answer"  # the call never starts: its result is the value that the person gives
    EDIT = "edit"  # the call may start, once, with the arguments that the person changed
    EXPIRE = "expire"  # its deadline passed, so the call never starts
    HAPPENED = "happened"  # the call took effect, with the result that the person reports
    RUN_AGAIN = "run_again"  # the call may start once more; counts as a new approval
    GIVE_UP = "give_up"  # the call counts as failed
    CONTINUE = "continue"  # the frame continues
    STOP = "stop"  # the run ends


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPreview:
    """What a call would do, as its tool computed it at `at`, for the action with this `digest`.

    `shown` is JSON for reviewers, None without a preview; then `missing` says why, empty if the tool makes none.
    `material` is the digest of the parts of it that matter. `refused` is the sentence of a precondition that does not
    hold.
    """

    at: datetime | None = None
    digest: str = ""
    shown: Any = None
    material: str = ""
    missing: str = ""
    refused: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The parts by which a person decides, as JSON."""
        return {"shown": self.shown, "material": self.material, "missing": self.missing}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The arguments that a person gives a call in place of the proposed ones.

    `digest` is the action digest of the call with them. `preview` is what the call would do with them, as the person
    saw it; None if the tool makes no preview.
    """

    args: dict[str, Any]
    digest: str
    preview: CallPreview | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision on a gate. `by` is a person's name, or empty if the clock decided.

    `reason` is free text, required to deny and to request changes; `result` is the result that a person reports or
    gives instead; `edit` has the arguments of an approval with changes.
    """

    verdict: Verdict
    by: str
    reason: str = ""
    result: Any = None
    edit: Edit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectClassRule:
    """The rules for calls of one effect class.

    `repeats_unasked`: an attempt without a known outcome is repeated; otherwise an in-doubt gate opens.
    `needs_same_key`: an attempt may only be repeated under its idempotency key. A fork has other keys.
    `commits_with_entry`: the writes commit with the journal entry, or are rolled back.
    `happened_when_returned`: a call that returned has taken effect, even if its result cannot be recorded.
    `has_side_effects`: the call can change something outside the run. Pages have a short `label`, and the
    `consequence` of a worker's death during a call.
    """

    label: str
    consequence: str
    repeats_unasked: bool = False
    needs_same_key: bool = False
    commits_with_entry: bool = False
    happened_when_returned: bool = False
    has_side_effects: bool = False


EFFECT_CLASSES: dict[EffectClass, EffectClassRule] = {
    EffectClass.READ: EffectClassRule(
        repeats_unasked=True,
        label="only reads",
        consequence="Only reads: repeated after a crash.",
    ),
    EffectClass.IDEMPOTENT: EffectClassRule(
        repeats_unasked=True,
        needs_same_key=True,
        happened_when_returned=True,
        has_side_effects=True,
        label="can be repeated",
        consequence="Safe to retry: takes effect only once, even after a crash.",
    ),
    EffectClass.TRANSACTIONAL: EffectClassRule(
        repeats_unasked=True,
        commits_with_entry=True,
        has_side_effects=True,
        label="all or nothing",
        consequence="Commits together with the run's journal or not at all. Repeated after a crash.",
    ),
    EffectClass.WRITE: EffectClassRule(
        happened_when_returned=True,
        has_side_effects=True,
        label="happens once",
        consequence="Not retried automatically. After a crash a person is asked whether it happened.",
    ),
}


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
    CallState.PROPOSED: CallStateRule(label="queued", is_to_come=True),
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
