"""Decisions on the page: forms, refusals and results; the pages of a hold; expiry."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from approvals.accounts.people import create_person
from approvals.adapter import Approvals
from approvals.models import Request
from approvals.policy import Group
from runtime.store import pool
from tests.support import seeds
from tests.support.api_client import Caller, code_of
from tests.support.cast import PASSWORD
from tests.support.office import Office
from tests.support.pages import has, log_in, send, shows, text_of

WORDS = {"reason": "my own words"}
# By kind, what each form sends; the first two decide differently.
WAYS: dict[str, dict[str, dict[str, str]]] = {
    "approval": {"approve": {}, "deny": WORDS},
    "in_doubt": {
        "settle/give-up": WORDS,
        "settle/happened": {"result": '{"message_id": "x"}', **WORDS},
        "settle/run-again": WORDS,
    },
    "hold": {"continue": {}, "stop": WORDS},
}


@pytest.mark.parametrize("kind", WAYS)
def test_each_kind_is_decided_once_in_its_ways_by_another_person(
    kind: str, office: Office, ada: Client, bea: Client
) -> None:
    if kind == "hold":
        asked = office.held()
    elif kind == "in_doubt":
        asked = office.in_doubt_request(office.in_doubt())
    else:
        asked = office.request(office.start())
    hides = [f"/{way}/" for way in WAYS[kind]]
    shows(ada, asked, "You may read this, but not", hides=hides)
    for way, form in WAYS[kind].items():
        page = text_of(send(ada, asked, way, **form), 403)
        has(page, "started this run, so another person must decide")
    for other, ways in WAYS.items():
        for way, form in ways.items() if other != kind else ():
            assert send(bea, asked, way, **form).status_code in (404, 422)
    asked.refresh_from_db()
    assert asked.status == "pending"
    (first, form), (second, words), *_ = WAYS[kind].items()
    for _ in range(2):  # two clicks
        answer = send(bea, asked, first, **form)
        assert (answer.status_code, answer["Location"]) == (302, f"/a/{asked.id}/")
    has(text_of(send(bea, asked, second, **words), 409), "You decided this already")
    dan = log_in(create_person(username="dan", password=PASSWORD, groups=[Group.REVIEWERS]))
    page = text_of(send(dan, asked, second, **words), 409)
    has(page, "<bdi>bea</bdi> was first", words["reason"])


def test_denying_tells_the_agent_the_reason_word_for_word(
    bea: Client, office: Office, asked: Request
) -> None:
    send(bea, asked, "deny", reason="Ask her lead first.\r\nThen again.")
    shows(bea, asked, "Denied by <bdi>bea</bdi>", "Ask her lead first.\nThen again.")
    office.advance(asked.run_id)
    (heard,) = office.effects.models[-3].messages[-1]["results"]
    assert "Ask her lead first.\nThen again." in str(heard["content"])
    assert "set_privileges" not in [call.tool for call in office.effects.calls]


def test_a_refused_decision_says_why_and_keeps_what_was_typed(bea: Client, asked: Request) -> None:
    has(text_of(send(bea, asked, "deny", reason="   "), 422), "is required to deny")
    long = "because " * 300
    has(text_of(send(bea, asked, "deny", reason=long), 422), long)
    changed = text_of(send(bea, asked, "approve", digest="sha256:another"), 409)
    has(changed, "the request changed while you were reading", asked.request_digest)
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_a_decision_is_flushed_before_its_answer(
    bea_api: Caller, office: Office, asked: Request
) -> None:
    """No crash after the 200 loses the decision. The test server flushes only if a session asks for it."""
    office.heartbeat.stop()  # it writes all the time
    with _flushing(), connection.cursor() as cursor:
        answer = bea_api.post(
            f"/approvals/{asked.id}/decision",
            {"verdict": "approve", "digest": asked.request_digest, "reason": ""},
        )
        cursor.execute("SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()")
        assert (answer.status_code, cursor.fetchone()) == (200, (True,))


@contextmanager
def _flushing() -> Iterator[None]:
    """Make new sessions of Django and of the engine flush their commits."""
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit = on")
    connection.close()
    pool.close()
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} RESET synchronous_commit")
    connection.close()
    pool.close()


# A hold


def test_a_hold_says_why_and_is_continued_or_stopped(bea: Client, office: Office) -> None:
    hold = office.held("stops after every reply")
    why = ("stops after every reply", "Why it stopped", "Nothing new starts")
    shows(bea, hold, *why, "Continue", "Stop the run")
    shows(bea, "/inbox/", why[0])
    state = "stopped: waits for a person to continue it"
    shows(bea, hold.run_id, "The agent is held for review", state)
    shows(bea, "/runs/", "hold")
    send(bea, hold, "continue")
    hold.refresh_from_db()
    assert (hold.status, hold.decided_by) == ("approved", "bea")
    assert json.loads(hold.statement or "")["verdict"] == "continue"
    office.advance(hold.run_id)
    shows(bea, hold, "Continued by <bdi>bea</bdi>", hides=["Nothing new starts"])
    shows(bea, hold.run_id, "continued by")
    other = office.held()
    has(text_of(send(bea, other, "stop"), 422), "the reason is required to stop the run")
    send(bea, other, "stop", reason="It goes in circles.")
    run = office.advance(other.run_id)
    assert (run.status, run.reason) == ("cancelled", "It goes in circles.")
    shows(bea, other, "The run was stopped by <bdi>bea</bdi>")


# Expiry


@pytest.mark.parametrize("recorded", [False, True])
def test_an_expired_request_says_so_and_refuses_decisions(
    ada: Client,
    bea: Client,
    bea_api: Caller,
    office: Office,
    asked: Request,
    monkeypatch: pytest.MonkeyPatch,
    recorded: bool,
) -> None:
    assert isinstance(asked.expires_at, datetime)
    left = f'<time datetime="{asked.expires_at.isoformat()}" data-countdown>in 6 d</time>'
    shows(bea, "/inbox/", left)
    shows(bea, asked, left, "Denied automatically if no reviewer decides by then.")
    seeds.set_clock(monkeypatch, timezone.now() + timedelta(days=8))
    if recorded:
        Approvals().expire(asked.gate)
    why = ("Expired: no person decided in time", "can start the run again")
    shows(bea, asked, *why, hides=["/approve/"])
    page = text_of(send(bea, asked, "deny", reason="my own words"), 410)
    has(page, "Too late: this has expired", "my own words")
    body = {"verdict": "approve", "digest": asked.request_digest}
    answer = bea_api.post(f"/approvals/{asked.id}/decision", body)
    assert code_of(answer) == (410, "expired")
    shows(bea, "/inbox/", "You're all caught up")
    office.advance(asked.run_id)
    shows(ada, asked.run_id, "expired without a decision")
    shows(ada, f"/runs/{asked.run_id}/?tab=transcript", "decided by <bdi>the deadline</bdi>")
