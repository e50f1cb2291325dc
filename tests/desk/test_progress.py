"""Folding a journal for people: whatever is stored, a page can show it."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from runtime import queries
from runtime.core.continuation import CallState

pytestmark = pytest.mark.django_db

AT = "2026-11-21T22:00:00+00:00"
OPENED: dict[str, Any] = {
    "type": "FrameOpened",
    "frame": "0",
    "agent": "a",
    "fingerprint": "f",
    "prompt": "p",
    "plan": None,
    "input": {},
}


def _replied(frame: str, *tools: str) -> dict[str, Any]:
    calls = [{"tool": tool, "args": {}} for tool in tools]
    return {
        "type": "ModelReplied",
        "frame": frame,
        "reply": {},
        "text": "",
        "calls": calls,
        "usage": {},
    }


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
    [
        "",
        "null",
        "[]",
        "{}",
        '{"schema": 99}',
        '{"schema": 1, "at": "then", "events": []}',
        "[" * 200_000,
    ],
)
def test_an_entry_that_cannot_be_read_is_named(body: str) -> None:
    found = queries.progress(_journal([OPENED], body, [_replied("0", "t")]))
    assert found.unreadable == (2,)
    assert [call.tool for call in found.roots[0].calls] == ["t"]


def test_events_that_fit_nothing_are_left_out() -> None:
    started = {"type": "ToolStarted", "frame": "9", "call": "c1.0", "attempt": 1, "at": AT}
    found = queries.progress(_journal([started, _replied("7", "t"), OPENED]))
    assert [frame.id for frame in found.frames()] == ["0"]


def test_frames_that_claim_each_other_as_parent_do_not_go_in_circles() -> None:
    loop = {**OPENED, "frame": "1", "parent": "1", "call": "c1.0"}
    found = queries.progress(_journal([OPENED, _replied("0", "t"), loop, _replied("1", "u"), loop]))
    assert [frame.id for frame in found.frames()] == ["0", "1"]


def test_a_frame_whose_parent_is_lost_is_still_shown() -> None:
    lost = {**OPENED, "frame": "0.c1.0", "parent": "0", "call": "c1.0"}
    found = queries.progress(_journal("", [lost]))
    assert [frame.agent for frame in found.roots] == ["a"]


def test_asking_again_forgets_the_first_decision() -> None:
    terms = {"effect": "write", "digest": "d", "deadline": 1.0}
    call = {"frame": "0", "call": "c1.0"}
    gate = {"type": "GateOpened", "gate": str(uuid4()), "kind": "approval", "terms": terms, **call}
    decided = {
        "type": "GateDecided",
        "gate": gate["gate"],
        "verdict": "approve",
        "by": "bea",
        "reason": "",
        **call,
    }
    found = queries.progress(_journal([OPENED, _replied("0", "t")], [gate], [decided], [gate]))
    (only,) = found.roots[0].calls
    assert (only.state, only.decided_by) == (CallState.GATED, "")
