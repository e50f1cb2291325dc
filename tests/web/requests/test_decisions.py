"""Decisions on the page: forms, their refusals, and their results."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.test import Client

from approvals.models import Request
from runtime.core.continuation import RunStatus
from runtime.store import pool
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import has, send, shows, text_of


def test_approving_lets_the_run_go_on_and_shows_who_decided(
    bea: Client, office: Office, asked: Request
) -> None:
    assert send(bea, asked, "approve")["Location"] == f"/a/{asked.id}/"
    shows(bea, asked, "Approved by <bdi>bea</bdi>")
    assert office.advance(asked.run_id).status == RunStatus.COMPLETED


def test_denying_tells_the_agent_the_reason_word_for_word(
    bea: Client, office: Office, asked: Request
) -> None:
    send(bea, asked, "deny", reason="Ask her lead first.\r\nThen again.")
    shows(bea, asked, "Denied by <bdi>bea</bdi>", "Ask her lead first.\nThen again.")
    office.advance(asked.run_id)
    assert "Ask her lead first.\nThen again." in _heard(office, "c2.0")
    assert "set_privileges" not in [call.tool for call in office.effects.calls]


def test_a_refused_decision_says_why_and_keeps_what_was_typed(bea: Client, asked: Request) -> None:
    has(text_of(send(bea, asked, "deny", reason="   "), 422), "is required to deny")
    long = "because " * 300
    has(text_of(send(bea, asked, "deny", reason=long), 422), long)
    changed = text_of(send(bea, asked, "approve", digest="sha256:another"), 409)
    has(changed, "the request changed while you were reading", asked.request_digest)
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_a_second_thought_is_no_second_click(bea: Client, asked: Request) -> None:
    send(bea, asked, "approve")
    has(text_of(send(bea, asked, "deny", reason="no"), 409), "You decided this already")


def _heard(office: Office, call: str) -> str:
    """The result of this call that account_agent's model received."""
    last = [request for request in office.effects.models if request.agent == "account_agent"][-1]
    told = [m["results"] for m in last.messages if m["role"] == "results"]
    return next(str(r["content"]) for results in told for r in results if r["call"] == call)


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
