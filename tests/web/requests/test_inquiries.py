"""What a reviewer asks for beside a verdict: an answer, changes, and more time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import uuid4

import pytest
from django.test import Client

from approvals.decisions.teamwork import inquire
from approvals.errors import TooManyInquiries
from approvals.models import Approval, AuditEntry
from approvals.reads import filters, history
from approvals.requests import snapshot, verification
from approvals.rights import principals
from runtime.control.verification import verify
from runtime.core.run.continuation import MAX_REVISIONS
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.limits import MAX_ANSWER, MAX_INQUIRIES, MAX_INQUIRY
from runtime.core.values.verdicts import CHANGES
from runtime.errors import Forbidden, InvalidInput
from runtime.models import Signal
from runtime.ports.access import Actor
from runtime.ports.effects import ModelAnswer, ModelFailure, ModelRequest, Outcome, RateLimited
from tests.support import seeds
from tests.support.api_client import Caller, field_of
from tests.support.engine import types
from tests.support.fake_ports import Script, ask, say, turns
from tests.support.office import Office, reseal
from tests.support.pages import has, in_order, send, shows, text_of

BEA, ADA = Actor(person="bea"), Actor(person="ada")


def answering(office: Office, *answers: Outcome) -> None:
    """Let account_agent answer questions with these."""
    work, left = office.effects.agents["account_agent"], list(answers)

    def model(request: ModelRequest) -> Outcome:
        return work(request) if request.inquiry is None else left.pop(0)

    agents: dict[str, Script] = office.effects.agents
    agents["account_agent"] = model


def test_the_answer_appears_in_the_request_which_can_still_be_decided(
    bea: Client, ada: Client, office: Office
) -> None:
    approval = office.request(office.start())
    answering(office, say("Because <b>level 3</b> was given."))
    shows(bea, approval, "Ask the agent", hides=["answers are written by the agent"])
    assert text_of(send(bea, approval, "ask", question="Why <i>level</i> 3?"), 302) == ""
    waits = ("Why &lt;i&gt;level&lt;/i&gt; 3?", "Waiting for the agent")
    shows(bea, approval, *waits)
    assert verify(approval.run_id).is_consistent
    assert office.advance(approval.run_id).status == "suspended"
    assert verify(approval.run_id).is_consistent
    page = shows(bea, approval, waits[0], "written by the agent", hides=[waits[1], "<b>level"])
    in_order(page, "Because &lt;b&gt;level 3", 'id="decision"')
    request = office.effects.models[-1]
    assert (request.frame, request.messages[-1]["by"]) == ("0.c1.0", "bea")
    assert [one["outcome"] for one in request.messages[-2]["results"]] == ["waiting"]
    shows(ada, f"/runs/{approval.run_id}/?tab=transcript", "question of", "answer to a question by")
    assert AuditEntry.objects.filter(run=approval.run_id, act="asked", actor="bea").count() == 1
    digest = approval.approval_digest
    approval.refresh_from_db()
    assert (approval.status, approval.approval_digest) == ("pending", digest)
    send(bea, approval, "approve")
    assert office.advance(approval.run_id).status == "completed"
    assert verify(approval.run_id).is_consistent


def test_a_failure_is_said_in_words_and_can_be_asked_again(bea: Client, office: Office) -> None:
    approval = office.request(office.start())
    busy = RateLimited(model="openai:x", until=seeds.moment(5), queue_number=7)
    answering(
        office, ModelFailure(error="the provider is down", retryable=True), busy, say("x" * 9_000)
    )
    for wrong in ("No answer: the provider is down.", "its provider wants fewer requests"):
        send(bea, approval, "ask", question="Why?")
        assert office.advance(approval.run_id).status == "suspended"
        page = shows(bea, approval, wrong, "Ask again")
    assert page.count('name="question" value="Why?"') == 2
    send(bea, approval, "ask", question="Why?")
    office.advance(approval.run_id)
    shows(bea, approval, "x" * (MAX_ANSWER - 1) + "…", hides=["x" * MAX_ANSWER])


@pytest.mark.parametrize("text", [" ", "x" * (MAX_INQUIRY + 1), "\x00"], ids=range(3))
def test_a_wrong_question_is_refused_and_kept(bea: Client, asked: Approval, text: str) -> None:
    page = text_of(send(bea, asked, "ask", question=text), 422)
    has(page, "Not asked: the inquiry", 'aria-invalid="true"', text[:50])
    assert not Signal.objects.exists()


def test_the_number_of_questions_is_limited(bea: Client, office: Office) -> None:
    approval = office.request(office.start())
    for number in range(MAX_INQUIRIES):
        inquire(approval_id=approval.id, question=f"Why {number}?", actor=BEA)
    with pytest.raises(TooManyInquiries):
        inquire(approval_id=approval.id, question="Why?", actor=BEA)
    shows(bea, approval, "asked 10 times about this call", "Why 9?", hides=['id="ask"'])
    assert AuditEntry.objects.filter(run=approval.run_id, act="asked").count() == MAX_INQUIRIES


def test_only_who_may_decide_a_pending_approval_asks(
    bea: Client, ada: Client, office: Office
) -> None:
    approval = office.request(office.start())
    shows(ada, approval, hides=['id="ask"'])
    with pytest.raises(Forbidden):
        inquire(approval_id=approval.id, question="Why?", actor=ADA)
    with pytest.raises(InvalidInput, match="waits for an approval"):
        inquire(approval_id=office.held().id, question="Why?", actor=BEA)
    send(bea, approval, "deny", reason="no")
    send(bea, approval, "ask", question="Why?")
    assert not AuditEntry.objects.filter(act="asked").exists()


def test_a_question_that_the_decision_overtakes_has_no_answer(bea: Client, office: Office) -> None:
    approval = office.request(office.start())
    send(bea, approval, "ask", question="Why?")
    send(bea, approval, "approve")
    answering(office)
    assert office.advance(approval.run_id).status == "completed"
    assert "QuestionAnswered" not in types(approval.run_id)
    shows(bea, approval, "Not answered: the request was closed first")


def test_an_answer_needs_a_budget(bea: Client, office: Office) -> None:
    work = office.effects.agents["account_agent"]
    office.effects.agents["account_agent"] = lambda request: replace(
        cast("ModelAnswer", work(request)), usage={"input_tokens": 5}
    )
    run = office.start(budget=BudgetLimits(tokens=10))  # both replies before the gate use it up
    approval = office.request(run)
    send(bea, approval, "ask", question="Why?")
    office.advance(run)
    shows(bea, approval, "No answer: the budget does not suffice for an answer.")
    assert all(one.inquiry is None for one in office.effects.models)


def test_the_api_asks_and_lists(bea_api: Caller, office: Office) -> None:
    approval = office.request(office.start())
    answering(office, say("Because."))
    path = f"/approvals/{approval.id}/questions"
    [sent] = bea_api.post(path, {"question": "Why?"}).json()
    assert (sent["state"], sent["person"], sent["asked_at"]) == ("waiting", "bea", None)
    office.advance(approval.run_id)
    [told] = bea_api.get(path).json()
    assert (told["state"], told["answer"], told["id"]) == ("answered", "Because.", sent["id"])
    assert field_of(bea_api.post(path, {"question": ""})) == (422, "question")
    assert bea_api.get(f"/approvals/{uuid4()}/questions").status_code == 404


# Changes


@pytest.fixture
def revising(office: Office) -> Office:
    """The agent proposes its second call twice, with another level the second time."""
    levels = [("set_privileges", {"username": "newhire", "security_level": n}) for n in (3, 1)]
    office.effects.agents["account_agent"] = turns(ask(levels[0]), ask(levels[1]), say("Done."))
    return office


def test_changes_are_requested_and_both_requests_are_linked(
    bea: Client, ada: Client, revising: Office
) -> None:
    first = revising.request(revising.start())
    shows(bea, first, "Request changes", f'The agent will receive: <q class="raw">{CHANGES}')
    assert text_of(send(bea, first, "changes", reason="Level <b>1</b>."), 302) == ""
    first.refresh_from_db()
    assert (first.status, verification.find_fault(first)) == ("denied", None)
    page = shows(bea, first, "Changes requested by <bdi>bea</bdi>", "Level &lt;b&gt;1&lt;/b&gt;.")
    has(page, "is asked to propose it again", hides=["Denied"])
    revising.advance(first.run_id)
    second = Approval.objects.get(run=first.run_id, status="pending")
    assert (second.revises, second.revision) == (first.gate, 2)
    has(shows(bea, first), f'href="/a/{second.id}/"', "revision 2")
    page = shows(bea, second, f'href="/a/{first.id}/"', "Level &lt;b&gt;1&lt;/b&gt;.", "Revision 2")
    has(page, "The agent changed 1 argument:", "before: ", "now: ")
    shows(bea, "/decisions/", "Changes requested")
    shows(ada, first.run_id, "changes requested by <bdi>bea</bdi>")
    chosen = [
        filters.read_criteria({"verdict": verdict}, UTC)
        for verdict in ("changes_requested", "denied")
    ]
    principal = principals.find_principal(Actor(person="bea"))
    found = [[one.verdict for one in history.read_page(principal, one).items] for one in chosen]
    assert found == [["changes_requested"], []]
    second.revises = None
    assert snapshot.compute_approval_digest(second) != second.approval_digest


def test_a_request_without_text_names_the_field_and_keeps_the_page(
    bea: Client, asked: Approval
) -> None:
    page = text_of(send(bea, asked, "changes", reason=" "), 422)
    has(page, "is required to request changes", 'data-writing="changes"', 'id="reason-problem"')
    stale = text_of(send(bea, asked, "changes", reason="my own words", digest="sha256:x"), 409)
    has(stale, "my own words", "the request changed while you were reading")
    assert seeds.untouched(asked)


def test_the_last_revision_is_approved_or_denied(bea: Client, office: Office) -> None:
    approval = office.request(office.start())
    reseal([approval], revises=approval.id, revision=MAX_REVISIONS)
    shows(bea, approval, "the last one: approve or deny it", hides=["Request changes"])
    with pytest.raises(InvalidInput, match="is its last one"):
        seeds.decide(approval, Actor(person="bea"), "request_changes", "Less.")
    assert seeds.untouched(approval)
    send(bea, approval, "deny", reason="no")
    approval.refresh_from_db()
    assert approval.status == "denied"


# More time


DAYS_10 = timedelta(days=10)


def local(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def test_a_reviewer_extends_and_everybody_reads_why(
    bea: Client, ada: Client, office: Office
) -> None:
    approval = office.request(office.start())
    until = datetime.now(UTC) + DAYS_10
    has(shows(bea, approval, "Extend the deadline", "extend-until"), "at most 30 days from now")
    sent = send(bea, approval, "extend", until=local(until), reason="Her <b>lead</b> is away.")
    assert sent.status_code == 302
    told = (
        "Extended",
        local(until).replace("T", " "),
        "by <bdi>bea",
        "Her &lt;b&gt;lead",
        f'expires <time datetime="{local(until)}',
    )
    for reader in (bea, ada):
        shows(reader, approval, *told)
    assert office.advance(approval.run_id).status == "suspended"
    assert types(approval.run_id)[-1] == "GateExtended"
    shows(ada, f"/runs/{approval.run_id}/?tab=transcript", "Extended a deadline", "lead")
    assert verify(approval.run_id).is_consistent
    send(bea, approval, "approve")
    assert office.advance(approval.run_id).status == "completed"
    assert verify(approval.run_id).is_consistent
    shows(ada, approval, *told[:-1])


def test_the_deadline_is_in_the_zone_of_the_reader(bea: Client, office: Office) -> None:
    approval = office.request(office.start())
    bea.cookies["signoff_zone"] = "Asia/Tokyo"
    day = datetime.now(UTC).date() + DAYS_10
    shows(bea, approval, "JST")
    send(bea, approval, "extend", until=f"{day}T09:00", reason="x")
    approval.refresh_from_db()
    assert approval.expires_at == datetime(day.year, day.month, day.day, tzinfo=UTC)


def test_a_wrong_form_comes_back_with_its_texts(bea: Client, office: Office) -> None:
    approval = office.request(office.start())
    moment = local(datetime.now(UTC) + timedelta(days=1))
    page = text_of(send(bea, approval, "extend", until=moment, reason="Why not"), 422)
    has(page, "after the present deadline", moment, "Why not")
    approval.refresh_from_db()
    assert approval.first_expires_at is None


def test_an_admin_extends_what_others_decide(
    bea: Client, admin: Client, ada: Client, office: Office
) -> None:
    approval = office.request(office.start())
    shows(admin, approval, "not decide it", "extend-until", hides=["Hand over", "Write a remark"])
    shows(ada, approval, hides=["extend-until"])
    sent = send(admin, approval, "extend", until=local(datetime.now(UTC) + DAYS_10), reason="x")
    assert sent.status_code == 302
    shows(bea, approval, "by <bdi>admin")


def test_a_program_extends(bea_api: Caller, office: Office) -> None:
    approval = office.request(office.start())
    until = (datetime.now(UTC) + DAYS_10).isoformat(timespec="seconds")
    answer = bea_api.post(f"/approvals/{approval.id}/extension", {"until": until, "reason": "x"})
    assert answer.status_code == 200
    told = answer.json()
    assert datetime.fromisoformat(told["expires_at"]) == datetime.fromisoformat(until)
    assert told["first_expires_at"] < told["expires_at"]
    assert told["digest"] == approval.approval_digest
