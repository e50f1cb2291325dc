"""The transcript shows all stored data, also damaged journals."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from runtime.core.continuation import CallState
from runtime.queries.transcript.transcript import read_transcript

pytestmark = pytest.mark.django_db

AT = "2026-11-21T22:00:00+00:00"
LATER = "2026-11-21T22:05:00+00:00"
TERMS = {"effect": "idempotent", "digest": "d", "deadline": 1.0}


def _event(type: str, frame: str = "0", **more: Any) -> dict[str, Any]:
    return {"type": type, "frame": frame, **more}


def _call(type: str, **more: Any) -> dict[str, Any]:
    return _event(type, call="c1.0", **more)


def _replied(frame: str, *tools: str) -> dict[str, Any]:
    calls = [{"tool": tool, "args": {}} for tool in tools]
    return _event("ModelReplied", frame, reply={}, text="", calls=calls, usage={})


def _retry(call: str | None) -> dict[str, Any]:
    return _event("RetryScheduled", call=call, until=LATER, attempt=1, cause="error", error="busy")


OPENED = _event("FrameOpened", agent="a", fingerprint="f", prompt="p", plan=None, input={})
STARTED = [_call("CallAdmitted", terms=TERMS), _call("ToolStarted", attempt=1, at=AT)]
CANCELLING = {"type": "Cancelling", "by": "ada", "reason": "enough"}
CANCELLED = {"type": "Cancelled", "reason": "enough"}


def _journal(*bodies: str | list[dict[str, Any]]) -> UUID:
    run = uuid4()
    at = datetime.now(UTC).isoformat()
    for position, events in enumerate(bodies, 1):
        document = {"schema": 1, "at": at, "events": events}
        body = events if isinstance(events, str) else json.dumps(document)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO runtime_journalentry (run_id, position, body, mac, key_id, commit_id)"
                " VALUES (%s, %s, %s, '', '', %s)",
                [run, position, body, uuid4()],
            )
    return run


@pytest.mark.parametrize(
    "body",
    ["", "[]", '{"schema": 99}', '{"schema": 1, "at": "then", "events": []}', "[" * 200_000],
)
def test_an_entry_that_cannot_be_read_is_named(body: str) -> None:
    found = read_transcript(_journal([OPENED], body, [_replied("0", "t")]))
    assert found.unreadable == (2,)
    assert [call.tool for call in found.roots[0].calls] == ["t"]


def test_frames_that_fit_nowhere_make_no_loop_and_are_shown_if_they_can() -> None:
    started = _event("ToolStarted", "9", call="c1.0", attempt=1, at=AT)
    loop = {**OPENED, "frame": "1", "parent": "1", "call": "c1.0"}
    nowhere = [started, _replied("7", "t")]
    replies = [_replied("0", "t"), loop, _replied("1", "u"), loop]
    found = read_transcript(_journal([*nowhere, OPENED, *replies]))
    assert [frame.id for frame in found.frames()] == ["0", "1"]
    lost = {**OPENED, "frame": "0.c1.0", "parent": "0", "call": "c1.0"}
    found = read_transcript(_journal("", [lost]))
    assert [frame.agent for frame in found.roots] == ["a"]


def test_asking_again_forgets_the_first_decision() -> None:
    gate = _call(
        "GateOpened", gate=str(uuid4()), kind="approval", terms={**TERMS, "effect": "write"}
    )
    decided = _call("GateDecided", gate=gate["gate"], verdict="approve", by="bea", reason="")
    found = read_transcript(_journal([OPENED, _replied("0", "t")], [gate], [decided], [gate]))
    (only,) = found.roots[0].calls
    assert (only.state, only.decided_by) == (CallState.GATED, "")


def test_a_retry_says_when_until_its_time_has_come() -> None:
    waiting = [[OPENED, _replied("0", "t")], STARTED, [_retry("c1.0")]]
    found = read_transcript(_journal(*waiting))
    (call,) = found.roots[0].calls
    assert (call.label, call.note) == ("tries again at", "busy")
    assert call.until == found.next_try == datetime.fromisoformat(LATER)
    assert found.roots[0].messages[-1].until == call.until
    found = read_transcript(_journal(*waiting, [_call("WaitEnded")]))
    assert (found.roots[0].calls[0].label, found.next_try) == ("will be tried again", None)


def test_a_model_that_is_asked_again_says_so_until_it_answers() -> None:
    asked = [[OPENED], [_retry(None)]]
    found = read_transcript(_journal(*asked))
    assert found.roots[0].retry is not None
    assert (found.roots[0].retry.error, found.roots[0].retry.attempt) == ("busy", 1)
    assert found.next_try == datetime.fromisoformat(LATER)
    ended = _event("WaitEnded", call=None)
    found = read_transcript(_journal(*asked, [ended]))
    assert (found.roots[0].retry is not None, found.next_try) == (True, None)
    found = read_transcript(_journal(*asked, [ended], [_replied("0", "t")]))
    assert found.roots[0].retry is None


def test_a_cancelled_run_tries_nothing_again() -> None:
    journal = [[OPENED, _replied("0", "t", "u")], STARTED, [_retry("c1.0")]]
    found = read_transcript(_journal(*journal, [CANCELLING], [CANCELLED]))
    first, second = found.roots[0].calls
    assert first.label == "not tried again: the run was ended first"
    assert second.label == "not started: the run was ended first"
    assert (first.has_side_effects, second.has_side_effects) == (True, False)
    assert (found.next_try, found.roots[0].outcome) == (None, "cancelled")
    assert found.ending is not None
    assert (found.ending.by, found.ending.reason) == ("ada", "enough")


@pytest.mark.parametrize("verdict", ["deny", "answer"])
def test_a_call_that_was_tried_may_have_left_traces_before_people_were_asked(verdict: str) -> None:
    gate = _call("GateOpened", gate=str(uuid4()), kind="approval", terms=TERMS)
    decided = _call("GateDecided", gate=gate["gate"], verdict=verdict, by="bea", reason="no")
    told = []
    for before in ([], [*STARTED, _retry("c1.0")]):
        found = read_transcript(_journal([OPENED, _replied("0", "t"), *before, gate, decided]))
        told += [call.has_side_effects for call in found.calls()]
    assert told == [False, True]


def test_reading_leaves_no_traces() -> None:
    read = _call("CallAdmitted", terms={**TERMS, "effect": "read"})
    returned = _call("ToolReturned", attempt=1, result=1)
    found = read_transcript(_journal([OPENED, _replied("0", "t")], [read, STARTED[1]], [returned]))
    (call,) = found.roots[0].calls
    assert (call.label, call.has_side_effects) == ("done", False)
