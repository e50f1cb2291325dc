"""The transcript shows what the journal says, up to where it is damaged."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.core.documents.codec import encode_entry
from runtime.core.run.events import (
    CallAdmitted,
    Cancelled,
    Cancelling,
    GateDecided,
    GateOpened,
    RetryScheduled,
    ToolReturned,
    ToolStarted,
    WaitEnded,
)
from runtime.core.run.reducer import Entry
from runtime.core.values.enums import CallState, EffectClass, GateKind, Verdict
from runtime.models import JournalEntry
from runtime.reads.transcript import Transcript, read_transcript
from tests.core.run.events import AT, TERMS, begun, opened, options, replied

pytestmark = pytest.mark.django_db

LATER = AT + timedelta(minutes=5)
OPENED: list[Any] = [begun(), opened()]
BEGUN: list[Any] = [*OPENED, replied("t")]
STARTED = ToolStarted(frame="0", call="c1.0", attempt=1, at=AT)
ADMITTED = CallAdmitted(frame="0", call="c1.0", terms=options(EffectClass.IDEMPOTENT))
TRIED: list[Any] = [ADMITTED, STARTED]

GATE = GateOpened(gate=UUID(int=7), kind=GateKind.APPROVAL, frame="0", call="c1.0", terms=TERMS)


def _retry(call: str | None) -> list[Any]:
    return [
        RetryScheduled(frame="0", call=call, until=LATER, attempt=1, cause="error", error="busy")
    ]


def _decided(verdict: Verdict) -> GateDecided:
    return GateDecided(
        gate=GATE.gate, frame="0", call="c1.0", verdict=verdict, by="bea", reason="no"
    )


def _read(*bodies: str | list[Any]) -> Transcript:
    """The transcript of a run with these entries."""
    run = uuid4()
    for position, body in enumerate(bodies, 1):
        text = body if isinstance(body, str) else encode_entry(Entry(at=AT, events=tuple(body)))
        JournalEntry.objects.create(run_id=run, position=position, body=text, commit_id=uuid4())
    return read_transcript(run)


@pytest.mark.parametrize(
    "body", ["", "[]", '{"schema": 99}', '{"schema": 1, "at": "then", "events": []}', "[" * 200_000]
)
def test_an_entry_that_cannot_be_read_is_named(body: str) -> None:
    transcript = _read(OPENED, body, [replied("t")])
    assert transcript.unreadable == (2,)
    assert [frame.calls for frame in transcript.roots] == [()]


def test_asking_again_forgets_the_first_decision() -> None:
    (only,) = _read(BEGUN, [GATE], [_decided(Verdict.APPROVE)], [GATE]).roots[0].calls
    assert (only.state, only.decided_by) == (CallState.GATED, "")


def test_a_retry_says_when_until_its_time_has_come() -> None:
    waiting = [BEGUN, TRIED, _retry("c1.0")]
    found = _read(*waiting)
    (call,) = found.roots[0].calls
    assert (call.label, call.note) == ("tries again at", "busy")
    assert call.until == found.next_try == LATER
    assert found.roots[0].messages[-1].until == call.until
    found = _read(*waiting, [WaitEnded(frame="0", call="c1.0")])
    assert (found.roots[0].calls[0].label, found.next_try) == ("will be tried again", None)


def test_a_model_that_is_asked_again_says_so_until_it_answers() -> None:
    asked: list[list[Any]] = [OPENED, _retry(None)]
    found = _read(*asked)
    assert found.roots[0].retry is not None
    assert (found.roots[0].retry.error, found.roots[0].retry.attempt) == ("busy", 1)
    assert found.next_try == LATER
    ended = WaitEnded(frame="0", call=None)
    found = _read(*asked, [ended])
    assert (found.roots[0].retry is not None, found.next_try) == (True, None)
    assert _read(*asked, [ended], [replied("t")]).roots[0].retry is None


def test_a_cancelled_run_tries_nothing_again() -> None:
    end: list[Any] = [Cancelling(by="ada", reason="enough"), Cancelled(reason="enough")]
    found = _read([*OPENED, replied("t", "u")], TRIED, _retry("c1.0"), end)
    first, second = found.roots[0].calls
    assert first.label == "not tried again: the run was ended first"
    assert second.label == "not started: the run was ended first"
    assert (first.has_side_effects, second.has_side_effects) == (True, False)
    assert (found.next_try, found.roots[0].outcome) == (None, "cancelled")
    assert found.ending is not None
    assert (found.ending.by, found.ending.reason) == ("ada", "enough")


@pytest.mark.parametrize("verdict", [Verdict.DENY, Verdict.ANSWER])
def test_a_tried_call_may_have_left_traces_before_people_were_asked(verdict: Verdict) -> None:
    told: list[bool] = []
    for before in ([], [*TRIED, *_retry("c1.0")]):
        found = _read([*BEGUN, *before, GATE, _decided(verdict)])
        told += [call.has_side_effects for call in found.calls()]
    assert told == [False, True]


def test_reading_leaves_no_traces() -> None:
    read = CallAdmitted(frame="0", call="c1.0", terms=options(EffectClass.READ))
    returned = ToolReturned(frame="0", call="c1.0", attempt=1, result=1)
    (call,) = _read([*BEGUN, read, STARTED, returned]).roots[0].calls
    assert (call.label, call.has_side_effects) == ("done", False)
