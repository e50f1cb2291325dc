"""The page of a call in doubt, the three ways to resolve it, and its late outcome."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.utils import timezone

from approvals.models import Approval, AuditEntry
from runtime.core.run.continuation import RunStatus
from runtime.errors import RunEnded
from runtime.models import Gate, JournalEntry
from runtime.store import pool, runs
from runtime.store.tables import late_outcomes
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.engine import events
from tests.support.office import MAIL_RESULT, Office, reseal
from tests.support.pages import has, in_order, send, shows, text, text_of

HOSTILE = "<script>alert(1)</script>\u202ebea"


def test_the_page_shows_the_call_and_its_ways_out(
    bea: Client, ada: Client, doubt: Approval
) -> None:
    started = "<bdi>Send welcome mail</bdi></b> was started <time"
    ways = [f"/settle/{way}/" for way in ("happened", "run-again", "give-up")]
    typed = ("The tool returns JSON of this schema", "message_id")
    page = shows(bea, doubt, started, "the connection was cut", *ways, *typed)
    in_order(page, "Started call", "<bdi>username</bdi>", "Did it happen?")
    of_run = ("In doubt: <bdi>Send welcome mail</bdi>", f"/a/{doubt.id}/", "Resolve it")
    shows(ada, doubt.run_id, *of_run)


@pytest.mark.parametrize(
    ("schema", "says", "typed", "shown"),
    [
        ({"type": "null"}, "The tool returns no value. Report null", "null", "null"),
        ({"type": "string"}, "Result (text)", "3 rows", "3 rows"),
        ({"type": "string"}, "Result (text)", '"3 rows"', "&quot;3 rows&quot;"),
        (None, "so any text or JSON value is accepted", "3 rows", "3 rows"),
    ],
)
def test_a_result_is_typed_as_the_tool_returns_it(
    bea: Client, office: Office, schema: dict[str, Any] | None, says: str, typed: str, shown: str
) -> None:
    office.effects.result_schema = schema
    approval = office.in_doubt_request(office.in_doubt())
    shows(bea, approval, says)
    if schema is None:
        broken = send(bea, approval, "settle/happened", result='{"id": 1')
        has(text_of(broken, 422), "result is not JSON (line 1)")
    assert send(bea, approval, "settle/happened", result=typed).status_code == 302
    assert office.advance(approval.run_id).status == "completed"
    shows(bea, approval, shown)


def test_running_again_waits(bea: Client, doubt: Approval, monkeypatch: pytest.MonkeyPatch) -> None:
    shows(bea, doubt, "disabled", "Possible from <time")
    page = text_of(send(bea, doubt, "settle/run-again"), 409)
    has(page, "The first start may still be running")
    seeds.set_clock(monkeypatch, timezone.now() + timedelta(hours=1))
    shows(bea, doubt, hides=["disabled"])
    assert send(bea, doubt, "settle/run-again", reason="No mail in the log.").status_code == 302
    shows(bea, doubt, "To be run again, approved by <bdi>bea</bdi>", "No mail in the log.")


def test_a_reported_result_is_marked_as_a_persons_report(
    bea: Client, ada: Client, office: Office, doubt: Approval
) -> None:
    result = '{"message_id": "m-17"}'
    answer = send(bea, doubt, "settle/happened", result=result, reason="In the log.")
    assert (answer.status_code, answer["Location"]) == (302, f"/a/{doubt.id}/")
    recorded = "Status: recorded, a worker applies it next"
    shows(bea, doubt, "It happened, as reported by <bdi>bea</bdi>", recorded)
    assert office.advance(doubt.run_id).status == "completed"
    shows(bea, doubt, "m-17")
    shows(bea, "/decisions/", "Done, as reported")
    shows(ada, doubt.run_id, "reported as done by <bdi>bea</bdi>")
    said = "<bdi>Send welcome mail</bdi>, given by <bdi>bea</bdi>"
    shows(ada, f"/runs/{doubt.run_id}/?tab=transcript", said)


def test_an_invalid_result_is_refused_and_kept_in_the_form(bea: Client, doubt: Approval) -> None:
    for result, said in (
        ("", "result is required"),
        ("[" * 100_000, "result is not JSON"),
        ("{}", "result.message_id is missing"),
        ("typed <script>", "result is not JSON (line 1)"),
    ):
        answer = send(bea, doubt, "settle/happened", result=result, reason=f"I looked. {HOSTILE}")
        kept = (result.replace("<script>", ""), "I looked.")
        has(text_of(answer, 422), said, *kept, hides=["<script>"])
    doubt.refresh_from_db()
    assert doubt.status == "pending"


def test_giving_up_needs_a_reason_and_shows_it(
    bea: Client, office: Office, doubt: Approval
) -> None:
    assert send(bea, doubt, "settle/give-up", reason=" ").status_code == 422
    why = f"No trace\r\nfound. {HOSTILE}"
    assert send(bea, doubt, "settle/give-up", reason=why).status_code == 302
    given_up = ("Given up by <bdi>bea</bdi>", "No trace\nfound.")
    shows(bea, doubt, *given_up, hides=["<script>", "\u202e"])
    shows(bea, doubt.run_id, "The outcome is reported. The worker applies it shortly")
    office.advance(doubt.run_id)
    shows(bea, doubt.run_id, "given up by <bdi>bea</bdi>")


def arrives(run: UUID, *, result: object = MAIL_RESULT, error: str = "") -> None:
    """Record the late outcome of the first attempt at the call in doubt."""
    gate = Gate.objects.get(run=run, kind="in_doubt")
    started = [one for one in events(run) if one["type"] == "ToolStarted"]
    at = datetime.fromisoformat(str(started[-1]["at"]))
    call: dict[str, Any] = {"run": run, "frame": gate.frame, "call": gate.call, "attempt": 1}
    times: dict[str, Any] = {"started_at": at, "worker": uuid4(), "at": at}
    came: dict[str, Any] = {"outcome": "returned", "result": result, "error": ""}
    if error:
        came = {"outcome": "failed", "result": None, "error": error}
    with pool.open_own() as own, own.transaction():
        assert late_outcomes.insert(own, late_outcomes.LateOutcomeRow(**call, **times, **came))
        with suppress(RunEnded):
            runs.notify_signal(own, run)


def pages(client: Client, approval: Approval) -> list[str]:
    """Return the page of the call in doubt and the page of the run."""
    return [text(client, approval), text(client, approval.run_id)]


def test_a_doubt_that_a_late_outcome_settled(bea: Client, office: Office, doubt: Approval) -> None:
    arrives(doubt.run_id)
    for page in pages(bea, doubt):
        has(page, "A worker applies it next, unless a person settles the call first.")
    assert office.advance(doubt.run_id).status == RunStatus.COMPLETED
    doubt.refresh_from_db()
    assert (doubt.status, doubt.decided_by) == ("cancelled", None)
    assert AuditEntry.objects.get(subject=f"request {doubt.id}", act="cancelled").actor is None
    of_doubt, of_run = pages(bea, doubt)
    has(of_doubt, "Resolved by the call itself", "returned its result late, so no person")
    has(of_run, "settled by its late outcome: done")
    for page in (of_doubt, of_run):
        has(page, "Late: <bdi>Send welcome mail</bdi> returned its result", "m-1")
        has(page, "It settled the call in doubt, and the agent was told the outcome.")
    told = "late outcome of <bdi>Send welcome mail</bdi>"
    shows(bea, f"/runs/{doubt.run_id}/?tab=transcript", told)


SAME, ELSE = "had reported the same.", "had reported something else, and the agent was told that."
GAVE_UP = "had given the call up, and the agent was told that it failed."


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ('{"message_id": "m-1", "at": 2}', "", SAME),
        ('{"message_id": "m-2"}', "", ELSE),
        ('{"message_id": "m-1"}', "<no>", ELSE),
        (None, "<no>", SAME),
        (None, "", GAVE_UP),
    ],
)
def test_a_late_outcome_is_compared_with_a_persons_report(
    bea: Client, office: Office, doubt: Approval, said: str | None, error: str, words: str
) -> None:
    if said is None:
        send(bea, doubt, "settle/give-up", reason="No.")
    else:
        send(bea, doubt, "settle/happened", result=said)
    office.advance(doubt.run_id)
    arrives(doubt.run_id, error=error, result={"at": 2, "message_id": "m-1"})
    office.advance(doubt.run_id)
    contradicts = "This contradicts the earlier decision: <b><bdi>bea"
    for page in pages(bea, doubt):
        has(page, f"</b> {words}", hides=["<no>"])
        assert (contradicts in page) is (words != SAME)
    (late,) = bea.get(f"/api/v1/runs/{doubt.run_id}/late-outcomes").json()
    assert (late["decided_by"], late["contradicts"]) == ("bea", words != SAME)
    assert late["note"] == f"bea {words}"


def test_a_doubt_of_a_cancelled_run_stays_one(bea: Client, office: Office, doubt: Approval) -> None:
    office.cancel(doubt.run_id, "Enough.")
    ended = "The run was cancelled by <bdi>ada</bdi>"
    shows(bea, doubt, ended, "it may have happened", hides=["/settle/"])
    shows(bea, doubt.run_id, "in doubt: the run was ended")
    arrives(doubt.run_id)
    for page in pages(bea, doubt):
        has(page, "The call was closed before it arrived, so the agent was not told.")


def test_the_api_reports_late_outcomes_too(
    bea_api: Caller, office: Office, doubt: Approval
) -> None:
    path, gate = f"/runs/{doubt.run_id}/late-outcomes", Gate.objects.get(kind="in_doubt")
    assert bea_api.get(path).json() == []
    arrives(doubt.run_id, error="<no>")
    (late,) = bea_api.get(path).json()
    assert bea_api.get(f"/approvals/{doubt.id}").json()["late_outcomes"] == [late]
    assert late["note"].startswith("A worker applies it next")
    call = {"frame": gate.frame, "call": gate.call, "tool": "send_welcome_mail", "attempt": 1}
    outcome = {"outcome": "failed", "result": None, "error": "<no>", "decided_by": None}
    assert late == late | call | outcome
    other = office.request(doubt.run_id)
    assert bea_api.get(f"/approvals/{other.id}").json()["late_outcomes"] == []


def test_a_call_in_doubt_is_not_run_again_unseen(bea: Client, office: Office) -> None:
    approval = office.in_doubt_request(office.in_doubt())
    reseal([approval], not_before=None)
    JournalEntry.objects.filter(run_id=approval.run_id, position=2).update(body='{"not')
    shows(bea, approval, 'disabled aria-describedby="unshown"')
    text_of(send(bea, approval, "settle/run-again"), 409)
    assert send(bea, approval, "settle/give-up", reason="because").status_code == 302


def test_running_a_high_risk_again_has_a_second_step(bea: Client, office: Office) -> None:
    approval = office.in_doubt_request(office.in_doubt())
    reseal([approval], risk="high", not_before=None)
    shows(bea, approval, "Run it again…", hides=['name="confirm"'])
    form = {"reason": "Not in the outbox."}
    step = text_of(bea.post(f"/a/{approval.id}/settle/run-again/", form))
    has(step, "High risk: type <b", "newhire", "Not in the outbox.", hides=["Not resolved"])
    wrong = text_of(send(bea, approval, "settle/run-again", confirm="x"), 422)
    has(wrong, "that is not <bdi>newhire</bdi>", 'value="x"')
    send(bea, approval, "settle/run-again")
    shows(bea, approval, "To be run again, approved by")


def test_a_request_of_any_kind_reads_in_one_column(bea: Client, office: Office) -> None:
    doubt = office.in_doubt_request(office.in_doubt())
    parts = ("Did it happen?", 'class="strip"', ">Input<", "Conversation", ">People<")
    in_order(shows(bea, doubt, *parts, hides=["<aside>"]), "Started call", *parts)
    page = shows(bea, office.held(), hides=["<aside>"])
    in_order(page, "Why it stopped", "If you stop it", *parts[1:])
    has(page, '<span class="raw">Account agent</span>')  # the agent is this step
