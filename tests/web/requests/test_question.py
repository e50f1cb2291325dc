"""The page of a question: the form of its answer, the decision, what the agent gets, and every refusal."""

import json
from typing import Any

import pytest
from django.test import Client

from approvals.models import Approval
from approvals.port.adapter import ApprovalService
from runtime.models import Signal
from tests.support import seeds
from tests.support.api_client import Caller, code_of, field_of
from tests.support.office import Office
from tests.support.pages import has, send, shows, text, text_of

TEXT = "Which cost centre pays for <b>New Hire</b>?\nThe team has two."
COST: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 1000, "maximum": 9999, "title": "Number"},
        "kind": {"enum": ["staff", "project"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "share": {"type": "number"},  # optional: left out, the answer would fit
    },
    "required": ["number", "kind", "note"],
}
GOOD = {"in.number": "4711", "in.kind": '"staff"', "in.note": ""}
VALUE = {"number": 4711, "kind": "staff", "note": None}


@pytest.fixture
def question(office: Office) -> Approval:
    return office.question(TEXT, COST)


def test_an_answer_is_the_result_of_the_call(
    bea: Client, ada: Client, office: Office, question: Approval
) -> None:
    page = shows(bea, question, "The agent asks: Which cost centre", "&lt;b&gt;")
    has(
        page,
        'name="in.number"',
        "1000 to 9999",
        "Question</span>",
        hides=["Approve", "/edit/", 'id="what"'],
    )
    send(bea, question, "answer", reason="as always", **GOOD)
    question.refresh_from_db()
    assert (question.status, question.decided_by, question.reason) == (
        "answered",
        "bea",
        "as always",
    )
    assert office.advance(question.run_id).status == "completed"
    assert "ask_person" not in {call.tool for call in office.effects.calls}
    heard = office.effects.models[-1].messages[-1]["results"][0]
    assert (heard["content"], heard["reported_by"], heard["answered"]) == (VALUE, "bea", True)
    has(shows(bea, question, "Answered by <bdi>bea</bdi>", "4711"), hides=["Answered instead"])
    has(shows(bea, "/decisions/", "Answered</span>"), hides=["Answered instead", "not made"])
    has(shows(ada, question.run_id, "answered by <bdi>bea</bdi>"), hides=["instead"])
    told = shows(ada, f"/runs/{question.run_id}/?tab=transcript", "Answered ask_person", "4711")
    has(told, "given by <bdi>bea</bdi>", hides=["instead"])


@pytest.mark.parametrize(
    ("schema", "form", "value"),
    [
        ({"type": "string"}, {"in.answer": " two\nlines "}, " two\nlines "),
        ({"type": "integer"}, {"in.answer": "7"}, 7),
        ({"enum": ["a", "b"]}, {"in.answer": '"b"'}, "b"),
        ({"type": "array", "items": {"type": "string"}}, {"in.answer.0": "x"}, ["x"]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"in.answer": ""}, None),
        (
            {"$ref": "#/$defs/Cost", "$defs": {"Cost": COST}},
            {f"in.answer.{name[3:]}": value for name, value in GOOD.items()},
            VALUE,
        ),
        ({}, {"in.answer": '{"any": "JSON"}'}, {"any": "JSON"}),
    ],
)
def test_every_type_has_a_form(
    bea: Client, office: Office, schema: dict[str, Any], form: dict[str, str], value: Any
) -> None:
    question = office.question("How?", schema)
    page = shows(bea, question)
    assert all(f'name="{name}"' in page for name in form)
    send(bea, question, "answer", **form)
    assert json.loads(Signal.objects.get().body)["result"] == value


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({**GOOD, "in.number": "12"}, "must be at least 1000"),
        ({**GOOD, "in.number": "many"}, "must be a whole number"),
        ({**GOOD, "in.share": "half"}, "must be a number"),
        ({**GOOD, "in.kind": ""}, "is missing"),
        ({**GOOD, "in.kind": '"other"'}, "breaks the limit enum"),
    ],
)
def test_a_wrong_form_names_its_field_and_keeps_everything(
    bea: Client, question: Approval, form: dict[str, str], words: str
) -> None:
    page = text_of(send(bea, question, "answer", reason="my words", **form), 422)
    has(page, words, "Not answered", "my words", f'value="{form["in.number"]}"')
    has(page, 'aria-invalid="true"')
    assert seeds.untouched(question)


def test_an_empty_text_is_no_answer(bea: Client, office: Office) -> None:
    question = office.question("How?", {"type": "string"})
    has(text_of(send(bea, question, "answer", **{"in.answer": ""}), 422), "is missing")
    assert seeds.untouched(question)


def test_a_question_can_be_declined(bea: Client, office: Office, question: Approval) -> None:
    unknown = "The answer is not known. Continue without an answer."
    page = text_of(send(bea, question, "deny"), 422)
    has(page, "is required to deny", 'name="in.number"', f'name="preset" value="{unknown}"')
    send(bea, question, "deny", preset=unknown)
    assert office.advance(question.run_id).status == "completed"
    heard = office.effects.models[-1].messages[-1]["results"][0]
    assert (heard["outcome"], heard["content"]) == ("denied", unknown)
    shows(bea, question, "Declined by <bdi>bea</bdi>", hides=["never starts"])


def test_it_expires_as_others_do(
    office: Office, bea: Client, question: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    shows(bea, question, "then the question ends without an answer", hides=["the call is denied"])
    assert question.expires_at is not None
    seeds.set_clock(monkeypatch, question.expires_at)
    ApprovalService().expire(question.gate)
    assert office.advance(question.run_id).status == "completed"
    shows(bea, question, "no person decided in time", "not answered", hides=["The call never"])


def test_nothing_else_can_be_decided(
    bea: Client, bea_api: Caller, ada: Client, ada_api: Caller, question: Approval
) -> None:
    for way in ("approve", "edit/approve", "edit", "continue", "settle/happened"):
        assert send(bea, question, way).status_code in (404, 422)
    path, said = f"/approvals/{question.id}/decision", {"digest": question.approval_digest}
    for verdict in ("approve", "edit", "continue", "happened", "run_again"):
        body = {**said, "verdict": verdict, "reason": "r", "arguments": {"question": "x"}}
        assert field_of(bea_api.post(path, body)) == (422, "verdict")
    # The requester never answers: they could settle their own question.
    has(text_of(send(ada, question, "answer", **GOOD), 403), "another person must decide")
    # Fields are checked only for a person who may decide.
    page = text_of(send(ada, question, "answer", **{**GOOD, "in.number": "1"}), 403)
    has(page, hides=["must be at least"])
    refused = ada_api.post(path, {**said, "verdict": "answer", "result": VALUE})
    assert code_of(refused) == (403, "requester")
    wrong = {**said, "verdict": "answer", "result": {**VALUE, "number": 1}}
    assert field_of(bea_api.post(path, wrong)) == (422, "result.number")
    assert seeds.untouched(question)


def test_the_api_answers(bea_api: Caller, question: Approval) -> None:
    body = {"digest": question.approval_digest, "verdict": "answer", "result": VALUE}
    found = bea_api.post(f"/approvals/{question.id}/decision", body).json()
    assert (found["kind"], found["status"]) == ("question", "answered")


def test_the_inbox_has_a_list_of_questions(
    bea: Client, ada: Client, office: Office, question: Approval
) -> None:
    other = office.request(office.start(args={"username": "newhire", "security_level": 3}))
    address = "/inbox/?q=kind%3Aquestion"
    page = shows(bea, "/inbox/", f'href="{address[7:]}">Questions <span class="num">1<')
    has(page, 'value="kind:question"')
    listed = shows(bea, address, "The agent asks: Which cost centre", "Question</span>")
    assert str(other.id) not in listed
    assert 'aria-current="page">Questions' in listed
    has(shows(ada, "/inbox/"), hides=["Questions <"])
    has(text(bea, "/inbox/?q=kind:riddle", 422), "must name one of the kinds")
