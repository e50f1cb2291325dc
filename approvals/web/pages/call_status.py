"""Describes the present state of a decided call: paused, about to start, started, or ended."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals import clock
from approvals.queries import requests
from runtime.control import kill_switches
from runtime.core.continuation import CallState
from runtime.core.enums import GateKind
from runtime.queries import runs
from runtime.queries.spans.calls import CallRecord
from runtime.queries.transcript.transcript import Transcript, read_transcript
from runtime.web.display import ahead

_NOT_STARTED = (CallState.GATED, CallState.ADMITTED, CallState.PROPOSED)
_CSS_CLASSES = {
    CallState.FAILED: "danger",
    CallState.REFUSED: "danger",
    CallState.UNKNOWN: "warn",
    CallState.CLOSED: "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """The state of a decided call. `css_class` is the colour of the box; `label`, with `moment`, names the state.

    `may_start` says that the call is approved and has not started. `error` is its error, `result` its result if
    `has_result`; `in_doubt` is the open request that asks for its outcome.
    """

    css_class: str
    label: str
    moment: datetime | None
    may_start: bool
    error: str
    has_result: bool
    result: Any
    in_doubt: UUID | None


def aftermath(
    shown: requests.Approval, status: str, call: CallRecord | None, transcript: Transcript
) -> Aftermath | None:
    """Describe the call of a decided request; None if the request is open or has no call."""
    if status == "pending" or call is None:
        return None
    lost = call.state is CallState.UNKNOWN
    open_request = requests.open_in_doubt(shown) if lost else None
    return Aftermath(
        css_class=_CSS_CLASSES.get(call.state, "ok")
        if status in ("approved", "answered")
        else "danger",
        label=_label(shown, status, call, transcript, told=open_request is None),
        moment=call.waits_until,
        may_start=status == "approved" and call.state in _NOT_STARTED,
        error=call.note
        if call.state in _CSS_CLASSES and call.state is not CallState.CLOSED
        else "",
        has_result=call.state is CallState.RETURNED,
        result=call.result,
        in_doubt=open_request,
    )


def outcome_text(shown: requests.Approval, decided: str, then: str) -> str:
    """Word the message after a decision: when it takes effect, and any paused part that must be resumed first."""
    held = _blocked_by(shown, read_transcript(shown.run))
    if _can_be_undone(shown):
        after = f" Then it waits until {held} resumed." if held else ""
        return f"{decided}. It takes effect {_ahead(shown)}; until then you can undo it.{after}"
    return f"{decided}. It takes effect when {held} resumed." if held else f"{decided}. {then}"


def _label(
    shown: requests.Approval, status: str, call: CallRecord, transcript: Transcript, *, told: bool
) -> str:
    """Name the state. `told` says that no open request asks for the call's outcome."""
    if shown.kind == GateKind.IN_DOUBT and call.state is CallState.UNKNOWN and told:
        when = _when(shown, transcript, held="a worker applies it", free="a worker applies it next")
        return f"recorded, {when}"
    if call.state not in _NOT_STARTED:
        return call.label
    if status != "approved":
        return "not started; the decision is recorded"
    if call.state is not CallState.GATED and not _blocked_by(shown, transcript):
        return call.label
    return f"approved, {_when(shown, transcript, held='starts', free='a worker starts it next')}"


def _when(shown: requests.Approval, transcript: Transcript, *, held: str, free: str) -> str:
    """Say when a decision is carried out: after the undo window, after a stop or pause, or next."""
    stopped = _blocked_by(shown, transcript)
    if not _can_be_undone(shown):
        return f"{held} when {stopped} resumed" if stopped else free
    after = f", then waits until {stopped} resumed" if stopped else ""
    return f"takes effect {_ahead(shown)}{after}"


def _can_be_undone(shown: requests.Approval) -> bool:
    return shown.effective_at is not None and shown.effective_at > clock.now()


def _ahead(shown: requests.Approval) -> str:
    return "" if shown.effective_at is None else ahead(shown.effective_at)


def _blocked_by(shown: requests.Approval, transcript: Transcript) -> str:
    """Name the run or agent that must be resumed first, with its verb; empty if none is paused or stopped."""
    agents = [stop.agent for stop in kill_switches.active()]
    if "" in agents:
        return "every agent is"
    for agent in shown.path:
        if agent in agents:
            return f"{agent} is"
    told = runs.pending_requests(shown.run).pause
    paused = transcript.pause is not None if told is None else told
    return "the run is" if paused else ""
