"""Lists the kinds of gates and the verdicts that settle them, with their rules and words.

A new verdict is one more member of its enum, one row here, and its case in the reducer if it changes a call in a new
way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from runtime.core.values.enums import CallState, GateKind, Risk, Verdict

Status = Literal["approved", "denied", "answered", "expired"]

_RUN_ENDED = "the run was ended first"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRule:
    """The rules and words of one kind of gate.

    `of_call`: it belongs to a call, otherwise to a frame. `before_call`: it opens before its call could start.
    `risk`: that of a gate of a frame; a call has its own. `open` and `closed`: its state on pages, without a decision.
    `alone`: why it is not decided together with others, empty if it can be.
    """

    of_call: bool = True
    before_call: bool = False
    risk: Risk | None = None
    open: str
    closed: str = _RUN_ENDED
    alone: str = ""


_STOPPED = "An agent was stopped here. Decide on its own page how it continues."

GATES: Mapping[GateKind, GateRule] = {
    GateKind.APPROVAL: GateRule(
        before_call=True,
        open="waits for a person to decide",
        closed=f"not started: {_RUN_ENDED}",
    ),
    GateKind.QUESTION: GateRule(
        before_call=True,
        open="waits for a person to answer",
        closed=f"not answered: {_RUN_ENDED}",
        alone="An agent asks here. Answer on its own page.",
    ),
    GateKind.IN_DOUBT: GateRule(
        open="in doubt: waits for a person to resolve it",
        closed=f"in doubt: {_RUN_ENDED}",
        alone="Its outcome is unknown, so it is resolved on its own page.",
    ),
    GateKind.HOLD: GateRule(
        of_call=False,
        risk=Risk.MEDIUM,
        open="stopped: waits for a person to continue it",
        alone=_STOPPED,
    ),
    GateKind.LIMIT: GateRule(
        of_call=False,
        risk=Risk.MEDIUM,
        open="at its limit: waits for a person to grant more",
        alone=_STOPPED,
    ),
    GateKind.VERSION: GateRule(
        of_call=False,
        risk=Risk.HIGH,
        open="changed: waits for a person to continue it",
        alone=_STOPPED,
    ),
}
BEFORE_CALL = frozenset(kind for kind, gate in GATES.items() if gate.before_call)
FRAME_GATES = frozenset(kind for kind, gate in GATES.items() if not gate.of_call)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRule:
    """The rules and words of one verdict.

    `gates`: the kinds it settles. `by_person`: a person may give it, and not only the clock. `status`: that of the
    approval. `call_becomes`: the state of the call, None at a gate of a frame. `needs_reason`: a reason is required.
    `in_result`: the model reads the verdict with the result. `is_remembered`: the same call is refused later in the
    run. `asks_again`: the agent proposes the call again. `ends_run`: the run ends. `carries`: the value that the person
    gives with it. `address`: that of its form, below the page of the approval.

    `verb` continues "you cannot" and "a reason is required to". The person follows `past`, the tool or the agent
    follows `title`. `toast` is the message after it: the record and the effect. The reason follows `received`, which
    the model reads. `in_history` names it in lists of decisions, and `call_label` the state of its call, both only
    where the words of the status and the state do not fit.
    """

    gates: frozenset[GateKind]
    by_person: bool = True
    status: Status
    call_becomes: CallState | None
    in_result: bool = False
    needs_reason: bool = False
    is_remembered: bool = False
    asks_again: bool = False
    ends_run: bool = False
    carries: Literal["result", "edit", "grant"] | None = None
    address: str = ""
    verb: str
    past: str
    title: str
    toast: tuple[str, str]
    received: str = ""
    in_history: str = ""
    call_label: str = ""

    @property
    def before_call(self) -> bool:
        """Whether it settles gates of calls that have not started."""
        return bool(self.gates & BEFORE_CALL)

    @property
    def replaces_call(self) -> bool:
        """Whether the person gives a result in place of the call, which never starts."""
        return self.before_call and self.carries == "result"

    @property
    def resolves_doubt(self) -> bool:
        """Whether it resolves a call whose outcome was lost."""
        return GateKind.IN_DOUBT in self.gates

    @property
    def starts_call(self) -> bool:
        """Whether the call may start after it, once."""
        return self.call_becomes is CallState.ADMITTED


# The texts before the reason, as an agent receives them. The page of a request shows the first two.
DENIED = "A person denied this call, it was not made. The reason given: "
CHANGES = "A person requested changes to this call, so it was not made. Make these changes and propose it again: "
EXPIRED = "This call was not made, because its approval expired. "

VERDICTS: Mapping[Verdict, VerdictRule] = {
    Verdict.APPROVE: VerdictRule(
        gates=frozenset({GateKind.APPROVAL}),
        status="approved",
        call_becomes=CallState.ADMITTED,
        address="approve",
        verb="approve it",
        past="approved by",
        title="Approved",
        toast=("Approved", "A worker starts it next."),
    ),
    Verdict.DENY: VerdictRule(
        gates=frozenset({GateKind.APPROVAL, GateKind.QUESTION}),
        status="denied",
        call_becomes=CallState.DENIED,
        needs_reason=True,
        is_remembered=True,
        address="deny",
        verb="deny it",
        past="denied by",
        title="Denied",
        toast=("Denied", "The call never starts."),
        received=DENIED,
    ),
    Verdict.REQUEST_CHANGES: VerdictRule(
        gates=frozenset({GateKind.APPROVAL}),
        status="denied",
        call_becomes=CallState.DENIED,
        needs_reason=True,
        is_remembered=True,
        in_result=True,
        asks_again=True,
        address="changes",
        verb="request changes to it",
        past="changes requested by",
        title="Requested changes to",
        toast=(
            "Changes requested",
            "The call never starts, and the agent is asked to propose it again.",
        ),
        received=CHANGES,
        in_history="changes_requested",
        call_label="to be changed, never started",
    ),
    Verdict.ANSWER: VerdictRule(
        gates=frozenset({GateKind.APPROVAL, GateKind.QUESTION}),
        status="answered",
        call_becomes=CallState.RETURNED,
        carries="result",
        address="answer",
        verb="answer it",
        past="answered instead by",
        title="Answered instead of",
        toast=("Answered", "The call is not made, and the agent gets your result."),
        call_label="answered by a person",
    ),
    Verdict.EDIT: VerdictRule(
        gates=frozenset({GateKind.APPROVAL}),
        status="approved",
        in_history="edited",
        call_becomes=CallState.ADMITTED,
        carries="edit",
        address="edit/approve",
        verb="approve it with changes",
        past="approved with changes by",
        title="Approved with changes:",
        toast=("Approved with changes", "A worker starts it next, with your arguments."),
    ),
    Verdict.EXPIRE: VerdictRule(
        gates=BEFORE_CALL,
        by_person=False,
        status="expired",
        call_becomes=CallState.DENIED,
        in_result=True,
        verb="let it expire",
        past="expired without a decision",
        title="Expired without a decision:",
        toast=("Expired", "The call never starts."),
        received=EXPIRED,
        call_label="expired, never started",
    ),
    Verdict.HAPPENED: VerdictRule(
        gates=frozenset({GateKind.IN_DOUBT}),
        status="answered",
        call_becomes=CallState.RETURNED,
        carries="result",
        address="settle/happened",
        verb="resolve it",
        past="reported as done by",
        title="Reported the outcome of",
        toast=("Resolved", "A worker continues the run next."),
    ),
    Verdict.RUN_AGAIN: VerdictRule(
        gates=frozenset({GateKind.IN_DOUBT}),
        status="approved",
        call_becomes=CallState.ADMITTED,
        address="settle/run-again",
        verb="let it run again",
        past="to run again, approved by",
        title="Approved to run again",
        toast=("Resolved", "A worker continues the run next."),
    ),
    Verdict.GIVE_UP: VerdictRule(
        gates=frozenset({GateKind.IN_DOUBT}),
        status="denied",
        call_becomes=CallState.FAILED,
        needs_reason=True,
        in_result=True,
        address="settle/give-up",
        verb="give it up",
        past="given up by",
        title="Gave up",
        toast=("Resolved", "A worker continues the run next."),
        received=(
            "This call was started, and it is not known whether it took effect. A person looked into it and gave it up."
            " The reason given: "
        ),
    ),
    Verdict.CONTINUE: VerdictRule(
        gates=FRAME_GATES,
        status="approved",
        call_becomes=None,
        carries="grant",
        address="continue",
        verb="continue it",
        past="continued by",
        title="Continued",
        toast=("Recorded", "A worker continues the run next."),
    ),
    Verdict.STOP: VerdictRule(
        gates=FRAME_GATES,
        status="denied",
        call_becomes=None,
        needs_reason=True,
        ends_run=True,
        address="stop",
        verb="stop the run",
        past="stopped by",
        title="Stopped",
        toast=("Recorded", "A worker ends the run next."),
    ),
}
# The words of verdicts at a question, where they differ.
_AT_QUESTION: Mapping[Verdict, VerdictRule] = {
    Verdict.ANSWER: replace(
        VERDICTS[Verdict.ANSWER],
        past="answered by",
        title="Answered",
        toast=("Answered", "The agent gets your answer."),
    ),
    Verdict.DENY: replace(
        VERDICTS[Verdict.DENY], toast=("Declined", "The agent gets your reason.")
    ),
    Verdict.EXPIRE: replace(
        VERDICTS[Verdict.EXPIRE], received="No person answered this question in time. "
    ),
}

# After these a call may start, once.
STARTS_CALL = frozenset(v for v, rule in VERDICTS.items() if rule.starts_call)
STARTS_CALL_UNCHANGED = frozenset(v for v in STARTS_CALL if VERDICTS[v].carries != "edit")
# The kinds at which a person can let the call start.
STARTING_GATES = frozenset(kind for v in STARTS_CALL for kind in VERDICTS[v].gates)
# The names of verdicts in lists of decisions, where they are not those of their status.
IN_HISTORY = {v: rule.in_history for v, rule in VERDICTS.items() if rule.in_history}
# The texts before a reason that a model receives.
RECEIVED = tuple(
    rule.received for rule in (*VERDICTS.values(), *_AT_QUESTION.values()) if rule.received
)
# The verdicts that people may give at each kind of gate.
VERDICTS_AT: Mapping[GateKind, tuple[Verdict, ...]] = {
    kind: tuple(v for v, rule in VERDICTS.items() if rule.by_person and kind in rule.gates)
    for kind in GateKind
}


def select_verdict_rule(kind: GateKind | None, verdict: Verdict) -> VerdictRule:
    """Return the row of a verdict with its words at a gate of this kind; None is any but a question."""
    at_question = _AT_QUESTION.get(verdict) if kind is GateKind.QUESTION else None
    return at_question or VERDICTS[verdict]
