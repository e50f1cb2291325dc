"""The transcript shows what the journal says, up to where it is damaged."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

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
from runtime.reads import run_figures
from runtime.reads.run_figures import RunTotals, run_totals
from runtime.reads.run_rows import count_quarantined
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


# Totals


def ended(first: int, last: int) -> None:
    """Add runs that completed, one in each minute, from the first to the last of so many minutes ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runtime_run (id, agent, requester, input, status, ended_at) SELECT gen_random_uuid(), 'a',"
            " 'ada', repeat('x', 500), 'completed', now() - n * interval '1 minute'"
            " FROM generate_series(%s::int, %s::int) AS n",
            [first, last],
        )
        cursor.execute("ANALYZE runtime_run")


def active(*statuses: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runtime_run (id, agent, requester, input, status)"
            " SELECT gen_random_uuid(), 'a', 'ada', '{}', unnest(%s::text[])",
            [list(statuses)],
        )


def blocks(act: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as made:
        act()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {made[0]['sql']}")
        (plan,) = cursor.fetchone()
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


@pytest.mark.slow
def test_totals_cost_the_same_beside_five_times_as_many_ended_runs() -> None:
    active(*["suspended"] * 3, *["queued", "running", "paused", "quarantined"])
    costs = list[tuple[int, int]]()
    for minutes in ((1, 10_000), (10_001, 50_000)):
        ended(*minutes)
        costs.append((blocks(run_totals), blocks(lambda: count_quarantined(Q()))))
    few, many = costs
    assert many[0] < 1.5 * few[0] + 20
    assert many[1] < few[1] + 20
    assert count_quarantined(Q()) == 1
    assert run_totals() == RunTotals(
        people=3, working=2, paused=1, quarantined=1, failed=0, finished=1439, cancelled=0
    )


def test_totals_of_many_runs_say_that_there_are_more(monkeypatch: pytest.MonkeyPatch) -> None:
    active(*["suspended"] * 3)
    assert not run_totals().at_least
    monkeypatch.setattr(run_figures, "MOST", 2)
    found = run_totals()
    assert (found.people, found.at_least) == (2, True)
