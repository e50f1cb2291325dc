"""Describes the present state of a decided call: paused, about to start, started, or ended."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals import clock
from approvals.reads import approval_views, history, related_requests
from approvals.rights.principals import Principal
from runtime.control import kill_switches
from runtime.core.values.enums import NOT_STARTED, CallState, GateKind
from runtime.core.values.verdicts import FRAME_GATES
from runtime.reads import run_rows
from runtime.reads.trace.calls import CallRecord
from runtime.reads.trace.span import SpanKind
from runtime.web.display import duration

_CSS_CLASSES = {
    CallState.FAILED: "danger",
    CallState.REFUSED: "danger",
    CallState.UNKNOWN: "warn",
    CallState.CLOSED: "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """The state of a decided call. `css_class` is the colour of the box; `label`, with `moment`, names the state.

    `counts_at` is when a decision that can still be undone takes effect, if nothing else holds the call up. `may_start`
    says that the call is approved and has not started. `error` is its error, `result` its result if `has_result`;
    `in_doubt` is the open request that asks for its outcome, `again` the one that asked about the call once more,
    because something had changed before it started.
    """

    css_class: str
    label: str
    moment: datetime | None = None
    counts_at: datetime | None = None
    may_start: bool = False
    error: str = ""
    has_result: bool = False
    result: Any = None
    in_doubt: UUID | None = None
    again: approval_views.ApprovalView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """The reasons for which a decision waits. `blocker` names the one to resume first, with its verb, empty for none.

    `counts_at` is the end of the time in which it can be undone, None without one and if something must be resumed.
    """

    blocker: str
    counts_at: datetime | None


def describe_aftermath(
    approval: approval_views.ApprovalView,
    status: str,
    call: CallRecord | None,
    principal: Principal | None,
) -> Aftermath | None:
    """Describe the call of a decided request; None if the request is open or has no call."""
    if status == "pending":
        return None
    if call is None:
        return _describe_recorded_call(approval)
    gates = [span.gate for span in call.spans]
    since = call.spans[gates.index(approval.gate) + 1 :] if approval.gate in gates else []
    if status == "approved" and any(span.gate_kind is GateKind.APPROVAL for span in since):
        # People were asked about the call once more, instead of starting it.
        again = related_requests.find_asked_again(approval, principal)
        preview = again.preview if again is not None else None
        changed = isinstance(preview, dict) and "before" in preview
        reason = "the consequences changed" if changed else "something changed since the approval"
        was_tried = since[0].gate_kind is not GateKind.APPROVAL
        label = f"{'not run again' if was_tried else 'not run'}: {reason}"
        return Aftermath(css_class="warn", label=label, again=again)
    lost = call.state is CallState.UNKNOWN
    open_request = related_requests.open_in_doubt(approval) if lost else None
    return Aftermath(
        css_class=_CSS_CLASSES.get(call.state, "ok")
        if status in ("approved", "answered")
        else "danger",
        label=_name_state(approval, status, call, open_request),
        moment=call.waits_until,
        counts_at=_find_counting_time(approval),
        may_start=status == "approved" and call.state in NOT_STARTED,
        error=call.note
        if call.state in _CSS_CLASSES and call.state is not CallState.CLOSED
        else "",
        has_result=call.state is CallState.RETURNED,
        result=call.result,
        in_doubt=open_request,
    )


def _describe_recorded_call(approval: approval_views.ApprovalView) -> Aftermath | None:
    """Describe a call whose journal is gone by its recorded outcome."""
    outcome = history.read_outcome(approval.id)
    if not outcome:
        return None
    by = "a person" if approval.decided_by else "the policy"
    labels = {
        "answered": f"answered by {by}",
        "in_doubt": "in doubt",
        "asked_again": "not run, asked again",
    }
    label = labels.get(outcome, outcome)
    return Aftermath(
        css_class={"failed": "danger", "in_doubt": "warn", "asked_again": "warn"}.get(
            outcome, "ok"
        ),
        label=f"{label}; the details were removed",
    )


def read_delay(approval: approval_views.ApprovalView) -> Delay:
    """Read the reasons for which a decision that was just made waits."""
    blocker = _name_blocker(approval)
    return Delay(blocker=blocker, counts_at=None if blocker else approval.effective_at)


def describe_outcome(
    approval: approval_views.ApprovalView, delay: Delay, decided: str, then: str
) -> str:
    """Word the message after a decision: the part that must be resumed first, else the effect.

    For a decision that can still be undone, the time at which it takes effect belongs after the message.
    """
    if delay.blocker:
        starts = approval.status == "approved" and approval.kind not in FRAME_GATES
        return (
            f"{decided}. It {'starts' if starts else 'takes effect'} when {delay.blocker} resumed."
        )
    return f"{decided}." if approval.effective_at is not None else f"{decided}. {then}"


def _find_counting_time(approval: approval_views.ApprovalView) -> datetime | None:
    if approval.effective_at is None or approval.effective_at <= clock.read_time():
        return None
    return None if _name_blocker(approval) else approval.effective_at


def _name_state(
    approval: approval_views.ApprovalView, status: str, call: CallRecord, open_request: UUID | None
) -> str:
    """Name the state; of a finished call with the duration of its last attempt. `open_request` asks for its outcome."""
    if approval.is_in_doubt and call.state is CallState.UNKNOWN and open_request is None:
        when = _describe_when(
            approval, if_blocked="a worker applies it", if_free="a worker applies it next"
        )
        return f"recorded, {when}"
    if call.state not in NOT_STARTED:
        last = call.spans[-1] if call.spans else None
        if call.state is not CallState.RETURNED or last is None or last.kind is not SpanKind.TOOL:
            return call.label
        if last.start is None or last.end is None:
            return call.label
        return f"{call.label} in {duration(last.end - last.start)}"
    if status != "approved":
        return "not started; the decision is recorded"
    waiting = _name_blocker(approval) or _find_counting_time(approval)
    return (
        f"approved, {_describe_when(approval, if_blocked='starts', if_free='')}"
        if waiting
        else "starting…"
    )


def _describe_when(approval: approval_views.ApprovalView, *, if_blocked: str, if_free: str) -> str:
    """Say when a decision is carried out: after a kill switch or pause, after the undo window, or next."""
    blocker = _name_blocker(approval)
    if blocker:
        return f"{if_blocked} when {blocker} resumed"
    return "takes effect" if _find_counting_time(approval) else if_free


def _name_blocker(approval: approval_views.ApprovalView) -> str:
    """Name the run or agent that must be resumed first, with its verb; empty if none is paused or stopped."""
    agents = [stop.agent for stop in kill_switches.list_active_switches()]
    if "" in agents:
        return "every agent is"
    for agent in approval.path:
        if agent in agents:
            return f"{agent} is"
    return "the run is" if run_rows.is_paused(approval.run) else ""
