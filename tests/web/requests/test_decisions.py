"""Decisions on the page: forms, their refusals, and their results."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import connection
from django.http import HttpResponse
from django.test import Client

from runtime.core.continuation import RunStatus
from runtime.store import pool
from tests.support.api_client import Caller
from tests.support.office import Office


def _send(client: Client, office: Office, run: UUID, verdict: str, **form: str) -> HttpResponse:
    request = office.request(run)
    form = {"digest": request.request_digest, **form}
    return client.post(f"/a/{request.id}/{verdict}/", form)  # type: ignore[return-value]


def test_approving_lets_the_run_go_on_and_shows_who_decided(
    bea: Client, office: Office, suspended: UUID
) -> None:
    answer = _send(bea, office, suspended, "approve")
    assert answer.status_code == 302
    assert "Approved by <bdi>bea</bdi>" in bea.get(answer["Location"]).content.decode()
    assert office.advance(suspended).status == RunStatus.COMPLETED
    page = bea.get(answer["Location"]).content.decode()
    assert "Status: done" in page


def test_denying_tells_the_agent_the_reason_word_for_word(
    bea: Client, office: Office, suspended: UUID
) -> None:
    answer = _send(bea, office, suspended, "deny", reason="Ask her lead first.\r\nThen again.")
    page = bea.get(answer["Location"]).content.decode()
    assert "Denied by <bdi>bea</bdi>" in page
    assert "Ask her lead first.\nThen again." in page
    office.advance(suspended)
    assert "Ask her lead first.\nThen again." in _heard(office, "c2.0")
    assert "set_privileges" not in [call.tool for call in office.effects.calls]


def test_denying_without_a_reason_is_refused(bea: Client, office: Office, suspended: UUID) -> None:
    answer = _send(bea, office, suspended, "deny", reason="   ")
    assert answer.status_code == 422
    assert "is required to deny" in answer.content.decode()
    assert office.request(suspended).status == "pending"


def test_a_refused_reason_is_kept_in_the_form(bea: Client, office: Office, suspended: UUID) -> None:
    long = "because " * 300
    answer = _send(bea, office, suspended, "deny", reason=long)
    assert answer.status_code == 422
    assert long in answer.content.decode()


def test_a_second_thought_is_no_second_click(bea: Client, office: Office, suspended: UUID) -> None:
    _send(bea, office, suspended, "approve")
    answer = _send(bea, office, suspended, "deny", reason="no")
    assert answer.status_code == 409
    assert "You decided this already" in answer.content.decode()


def test_a_changed_request_is_shown_again_and_not_decided(
    bea: Client, office: Office, suspended: UUID
) -> None:
    answer = _send(bea, office, suspended, "approve", digest="sha256:another")
    assert answer.status_code == 409
    page = answer.content.decode()
    assert "the request changed while you were reading" in page
    assert office.request(suspended).request_digest in page
    assert office.request(suspended).status == "pending"


def _heard(office: Office, call: str) -> str:
    """The result of this call that account_agent's model received."""
    last = [request for request in office.effects.models if request.agent == "account_agent"][-1]
    told = [m["results"] for m in last.messages if m["role"] == "results"]
    return next(str(r["content"]) for results in told for r in results if r["call"] == call)


def test_a_decision_is_flushed_before_its_answer(
    bea_api: Caller, office: Office, suspended: UUID
) -> None:
    """No crash after the 200 loses the decision. The test server flushes only if a session asks for it."""
    office.heartbeat.stop()  # it writes all the time
    request = office.request(suspended)
    with _flushing(), connection.cursor() as cursor:
        answer = bea_api.post(
            f"/approvals/{request.id}/decision",
            {"verdict": "approve", "digest": request.request_digest, "reason": ""},
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
