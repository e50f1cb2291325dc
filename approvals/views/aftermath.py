"""What became of a decision, in words that are true at this moment: held up, about to start, started, or over."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals import clock, queries
from runtime import queries as runs
from runtime import stopping
from runtime.core.continuation import CallState
from runtime.queries import CallView, Progress
from runtime.templatetags.reading import ahead

_NOT_STARTED = (CallState.GATED, CallState.ADMITTED, CallState.PROPOSED)
_TONES = {
    CallState.FAILED: "danger",
    CallState.REFUSED: "danger",
    CallState.UNKNOWN: "warn",
    CallState.CLOSED: "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """`tone` is the colour of the box; `words`, with `moment`, say where the call stands.

    `may_start` says that the call is approved and has not started. `error` is what it failed with, `result` what it
    returned where `has_result`; `doubt` is the request in which its outcome is to be settled.
    """

    tone: str
    words: str
    moment: datetime | None
    may_start: bool
    error: str
    has_result: bool
    result: Any
    doubt: UUID | None


def aftermath(
    shown: queries.Approval, status: str, call: CallView | None, progress: Progress
) -> Aftermath | None:
    """None for a request that is open, or about no call."""
    if status == "pending" or call is None:
        return None
    started = call.state not in _NOT_STARTED
    words = call.words if started else _not_started(shown, status, call, progress)
    return Aftermath(
        tone=_TONES.get(call.state, "ok") if status in ("approved", "answered") else "danger",
        words=words,
        moment=call.moment,
        may_start=status == "approved" and not started,
        error=call.note if call.state in _TONES and call.state is not CallState.CLOSED else "",
        has_result=call.state is CallState.RETURNED,
        result=call.result,
        doubt=queries.open_doubt(shown) if call.state is CallState.UNKNOWN else None,
    )


def said(shown: queries.Approval, decided: str, then: str) -> str:
    """What a page says right after a decision: when it takes effect, or what it waits for."""
    if shown.effective_at is not None and shown.effective_at > clock.now():
        return (
            f"{decided}. It takes effect {ahead(shown.effective_at)}; until then you can undo it."
        )
    held = _held(shown, runs.progress(shown.run))
    return f"{decided}. It takes effect when {held} resumed." if held else f"{decided}. {then}"


def _not_started(shown: queries.Approval, status: str, call: CallView, progress: Progress) -> str:
    if status != "approved":
        return "not started; the decision is recorded"
    if shown.effective_at is not None and shown.effective_at > clock.now():
        return f"approved, takes effect {ahead(shown.effective_at)}"
    held = _held(shown, progress)
    if held:
        return f"approved, starts when {held} resumed"
    return "approved, a worker starts it next" if call.state is CallState.GATED else call.words


def _held(shown: queries.Approval, progress: Progress) -> str:
    """Who must be resumed first, with its verb; empty if nothing is held up."""
    agents = [stop.agent for stop in stopping.on()]
    if "" in agents:
        return "every agent is"
    for agent in shown.path:
        if agent in agents:
            return f"{agent} is"
    told = runs.asked(shown.run).pause
    paused = progress.pause is not None if told is None else told
    return "the run is" if paused else ""
