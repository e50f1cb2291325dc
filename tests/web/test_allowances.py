"""The pages of allowances: the form of a request, the second person, the uses, and a revocation."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.governance import allowance_uses
from approvals.models import AllowanceAct, Approval
from approvals.rules.policy import Group
from tests.support import seeds
from tests.support.office import Office
from tests.support.pages import has, log_in
from tests.support.seeds import Cast

GIVEN = {
    "rule.0": "any",
    "values.0": "newhire",
    "rule.1": "between",
    "values.1": "1\n3\n",
    "count": "2",
    "days": "7",
}


def words(answer: Any, status: int = 200) -> str:
    """The words of a page, without its tags."""
    assert answer.status_code == status
    return " ".join(re.sub(r"<[^>]+>", "", answer.content.decode()).split())


def shows(client: Client, place: str, *said: str, hides: tuple[str, ...] = ()) -> None:
    has(words(client.get(place)), *said, hides=hides)


@pytest.fixture
def cora(cast: Cast) -> Client:
    """Another reviewer."""
    seeds.person("cora", Group.REVIEWERS)
    return log_in(User.objects.get(username="cora"))


@pytest.mark.django_db(transaction=True)
def test_an_allowance_from_the_form_to_its_uses_and_its_end(
    bea: Client, cora: Client, admin: Client, office: Office, asked: Approval
) -> None:
    shows(bea, "/allowances/", "No allowances yet")
    shows(bea, f"/a/{asked.id}/", "Allow more calls like this…")
    shows(bea, f"/a/{asked.id}/allow/", "username", "in this request: newhire", "Propose allowance")
    proposed = bea.post(f"/a/{asked.id}/allow/", GIVEN, follow=True)
    has(words(proposed), "A second person must confirm it.", "from 1 to 3", "Withdraw proposal")
    assert "Confirm allowance" not in words(proposed)
    place = f"/allowances/{AllowanceAct.objects.get().allowance}/"
    has(words(bea.post(f"{place}confirm/"), 409), "Another person must confirm")
    shows(admin, place, "A second person must confirm it", hides=("Confirm allowance",))
    has(words(cora.post(f"{place}confirm/", follow=True)), "The allowance is in force.")
    allowance_uses.forget()
    run = office.start(args={"username": "second", "security_level": 2})
    passed = Approval.objects.get(run=run)
    shows(bea, "/allowances/", "1 of 2 calls of Set privileges left", "confirmed by cora")
    shows(bea, place, "Set the privileges of second to 2", "run started by ada")
    shows(bea, f"/a/{passed.id}/", "Approved by an allowance", "this is use 1 of an allowance")
    shows(bea, "/decisions/", "by an allowance of cora")
    shows(bea, f"/runs/{run}/?tab=transcript", "the allowance of bea and cora")
    item = bea.get("/decisions.jsonl").getvalue().decode()
    assert '"channel": "allowance"' in item or '"channel":"allowance"' in item
    ended = admin.post(f"{place}revoke/", {"reason": "Too many."}, follow=True)
    has(words(ended), "The allowance is revoked.", "revoked by admin", "Too many.")
    has(words(admin.post(f"{place}revoke/"), 409), "was revoked before")


def test_a_wrong_limit_is_named_and_nothing_typed_is_lost(bea: Client, asked: Approval) -> None:
    wrong = {**GIVEN, "values.1": "one\n2", "count": "7"}
    page = words(bea.post(f"/a/{asked.id}/allow/", wrong), 422)
    has(page, "Correct the marked argument", "security_level needs JSON, such as 3")
    answer = bea.post(f"/a/{asked.id}/allow/", {**wrong, "values.1": "1\n2", "count": "many"})
    has(words(answer, 422), "count must be a whole number from 1 to 1000")
    body = answer.content.decode()
    has(body, 'value="many"', '<option value="between" selected>')
    assert not AllowanceAct.objects.exists()


def test_a_page_says_why_there_is_no_allowance(bea: Client, ada: Client, asked: Approval) -> None:
    shows(ada, f"/a/{asked.id}/allow/", "ada started this run", hides=("Propose allowance",))
    shows(ada, f"/a/{asked.id}/", hides=("Allow more calls",))
