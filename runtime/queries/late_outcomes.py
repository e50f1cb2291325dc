"""Lists the late outcomes of calls, and whether they contradict what people reported."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.documents.blobs import digest_of
from runtime.core.run import events as e
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import KeyMissing
from runtime.queries.journal import JournalLine, read
from runtime.queries.redaction import redact
from runtime.queries.transcript.transcript import Transcript
from runtime.store import pool
from runtime.store.tables import late_outcomes
from runtime.store.tables.late_outcomes import LateOutcomeRow

Attempt = tuple[str, str, int]  # frame, call and number


@dataclass(frozen=True, slots=True, kw_only=True)
class LateView:
    """One late outcome. `value` is the call's result or error, with secrets redacted.

    `by` is the person who settled that attempt, empty for none; `contradicts` says that they reported something else.
    `label` says what followed; a person's name goes before it.
    """

    frame: str
    call: str
    tool: str
    attempt: int
    at: datetime
    returned: bool
    value: Any
    label: str
    by: str = ""
    contradicts: bool = False


def of_run(run: UUID, transcript: Transcript) -> tuple[LateView, ...]:
    """List the late outcomes of a run, oldest first. The caller has checked that the run may be read."""
    try:
        found = late_outcomes.read_for_run(pool.djangos(), run).genuine
    except KeyMissing:
        return ()  # verify_run names the key
    if not found:
        return ()
    state = _read_state(read(run))
    return tuple(
        _view(one, state, transcript) for one in found if _attempt(one) not in state.on_time
    )


def of_call(run: UUID, transcript: Transcript, *, frame: str, call: str) -> tuple[LateView, ...]:
    """List the late outcomes of all attempts at one call; otherwise as `of_run`."""
    return tuple(one for one in of_run(run, transcript) if (one.frame, one.call) == (frame, call))


class _JournalState:
    """The state of each attempt by the journal."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], int] = {}
        self.on_time: set[Attempt] = set()
        self.arrived: set[Attempt] = set()
        self.closed: set[Attempt] = set()
        self.decided: dict[Attempt, e.GateDecided] = {}
        self.over = False

    def add(self, event: e.Event) -> None:
        match event:
            case e.ToolStarted():
                self.last[event.frame, event.call] = event.attempt
            case e.ToolReturned() | e.ToolFailed():
                self.on_time.add((event.frame, event.call, event.attempt))
            case e.OutcomeArrived():
                self.arrived.add((event.frame, event.call, event.attempt))
            case e.GateClosed():
                self.closed.add(self._now(event))
            case e.GateDecided() if GateKind.IN_DOUBT in VERDICTS[event.verdict].gates:
                self.decided[self._now(event)] = event
            case e.Completed() | e.Failed() | e.Cancelled() | e.Exported():
                self.over = True
            case e.Retried() | e.Imported():
                self.over = False
            case _:
                pass

    def _now(self, event: e.GateClosed | e.GateDecided) -> Attempt:
        return event.frame, event.call, self.last.get((event.frame, event.call), 0)


def _read_state(lines: Iterable[JournalLine]) -> _JournalState:
    state = _JournalState()
    for line in lines:
        for event in line.entry.events if line.entry else ():
            state.add(event)
    return state


def _attempt(late: LateOutcomeRow) -> Attempt:
    return late.frame, late.call, late.attempt


def _view(late: LateOutcomeRow, state: _JournalState, transcript: Transcript) -> LateView:
    call = transcript.call(late.frame, late.call)
    decided = state.decided.get(_attempt(late))
    same = decided is not None and _same(late, decided)
    is_removed = call is None and transcript.beginning is not None
    return LateView(
        frame=late.frame,
        call=late.call,
        tool=call.tool if call else late.call,
        attempt=late.attempt,
        at=late.at,
        returned=late.outcome == "returned",
        value=redact(late.result if late.outcome == "returned" else late.error),
        label=_label(late, state, is_removed=is_removed)
        if decided is None
        else _beside(decided.verdict, same),
        by="" if decided is None else decided.by,
        contradicts=decided is not None and not same,
    )


def _label(late: LateOutcomeRow, state: _JournalState, *, is_removed: bool) -> str:
    if is_removed:
        return "The history of this call was removed."
    attempt = _attempt(late)
    if attempt in state.arrived:
        return "It settled the call in doubt, and the agent was told the outcome."
    if state.last.get((late.frame, late.call), 0) > late.attempt:
        return "The call had been made again before it arrived."
    if state.over or attempt in state.closed:
        return "The call was closed before it arrived, so the agent was not told."
    return "A worker applies it next, unless a person settles the call first."


def _beside(verdict: Verdict, same: bool) -> str:
    if same:
        return "had reported the same."
    match verdict:
        case Verdict.RUN_AGAIN:
            return "had the call run again, so it may have had its effect twice."
        case Verdict.GIVE_UP:
            return "had given the call up, and the agent was told that it failed."
        case _:
            return "had reported something else, and the agent was told that."


def _same(late: LateOutcomeRow, decided: e.GateDecided) -> bool:
    """Tell whether the reviewer's report fits the outcome. A failed call fits both a repeat and giving up."""
    if late.outcome == "failed":
        return decided.verdict is not Verdict.HAPPENED
    if decided.verdict is not Verdict.HAPPENED:
        return False
    if decided.stored:
        return digest_of(json.dumps(late.result, separators=(",", ":"))) == decided.stored.digest
    # The order of keys does not count, and `true` is not 1.
    return json.dumps(late.result, sort_keys=True) == json.dumps(decided.result, sort_keys=True)
