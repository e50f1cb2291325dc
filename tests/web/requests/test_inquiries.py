"""A reviewer asks the agent on the page of a request, which stays open: the answer, its limits and its refusals."""

from dataclasses import replace
from typing import cast
from uuid import uuid4

import pytest
from django.test import Client

from approvals.decisions.teamwork import inquire
from approvals.errors import TooManyInquiries
from approvals.models import Approval, AuditEntry
from runtime.control.verification import verify
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.limits import MAX_ANSWER, MAX_INQUIRIES, MAX_INQUIRY
from runtime.errors import Forbidden, InvalidInput
from runtime.models import Signal
from runtime.ports.access import Actor
from runtime.ports.effects import ModelAnswer, ModelFailure, ModelRequest, Outcome, RateLimited
from tests.support import seeds
from tests.support.api_client import Caller, field_of
from tests.support.engine import types
from tests.support.fake_ports import Script, say
from tests.support.office import Office
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
