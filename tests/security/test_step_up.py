"""A rule that asks for a fresh second factor: nothing else decides, and the worker checks it again."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals import clock
from approvals.decisions import votes as votes_of_people
from approvals.models import Approval, Vote
from approvals.reads import approval_views
from approvals.reads.history import read_evidence
from approvals.requests import confirmation
from approvals.signed import statements
from runtime.errors import Forbidden
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.pages import has, log_in, send, shows
from tests.support.second_factors import Phone, give_code, give_password, page_of, phone_of
from tests.support.seeds import Cast, decide

pytestmark = pytest.mark.django_db

RULE = "rules: [{name: Fresh, step_up: required}]"
TWO = "rules: [{name: Fresh, step_up: required, quorum: 2}]"


def _proof(seconds_ago: float = 0.0, how: str = "password+totp") -> dict[str, str]:
    return {"how": how, "at": clock.to_wire(clock.read_time() - timedelta(seconds=seconds_ago))}


def _with(person: str, proof: Mapping[str, str] | None) -> Actor:
    return Actor(person=person, authenticated=proof)


def _confirm(browser: Client, approval: Approval, code: str) -> str:
    page = f"/a/{approval.id}/"
    answer = browser.post("/account/second/", {"code": code, "next": page}, follow=True)
    assert answer.redirect_chain == [(page, 302)]
    return page_of(answer)


@pytest.fixture
def approval(cast: Cast) -> Approval:
    """A request under the rule, which Bea may decide."""
    return asked(RULE)


@pytest.fixture
def phone(cast: Cast) -> Phone:
    return phone_of("bea")


def test_a_decision_needs_a_code_and_the_statement_says_so(
    approval: Approval, phone: Phone, cast: Cast
) -> None:
    browser = log_in(cast.bea)
    shows(browser, approval, "Confirm that it is you", "Code of your authenticator app")
    for way in ("approve", "deny"):
        refused = send(browser, approval, way, reason="because")
        has(page_of(refused), "second factor of the last 5 minutes")
        assert refused.status_code == 403
    assert seeds.untouched(approval)
    has(_confirm(browser, approval, "000000"), "wrong, or was used before")
    page = has(_confirm(browser, approval, phone.code()), "You can decide now")
    assert "Confirm that it is you" not in page
    send(browser, approval, "approve")
    approval.refresh_from_db()
    assert approval.status == "approved"
    proof = statements.read(approval).authenticated
    assert proof is not None
    assert proof["how"] == "password+totp"
    assert clock.read_time() - datetime.fromisoformat(proof["at"]) < timedelta(minutes=5)
    seeds.verify_decision(approval)
    seeds.verify_approval(approval)
    shows(log_in(cast.bea), approval, "Logged in with", "password+totp")
    shows(log_in(cast.bea), "/decisions/", "logged in with <bdi>password+totp")
    view = approval_views.read_approval(approval.id, actor=Actor(person="bea"))
    assert read_evidence(view)["request"]["authenticated"] == proof


def test_a_login_with_a_code_is_fresh_for_five_minutes(approval: Approval, phone: Phone) -> None:
    browser = Client()
    give_password(browser, "bea")
    give_code(browser, phone.code())
    assert "Confirm that it is you" not in shows(browser, approval, "Approve")


@pytest.mark.parametrize(("age", "decides"), [(299, True), (301, False), (-61, False)])
def test_a_second_factor_is_fresh_for_five_minutes(
    approval: Approval, age: float, decides: bool
) -> None:
    actor = _with("bea", _proof(age))
    if decides:
        assert decide(approval, actor).status == "approved"
        return
    with pytest.raises(Forbidden) as refused:
        decide(approval, actor)
    assert refused.value.code == "step_up"
    assert seeds.untouched(approval)


@pytest.mark.parametrize("verdict", ["approve", "deny", "answer", "request_changes", "edit"])
@pytest.mark.parametrize("proof", [None, {"how": "password"}, {"how": "oidc:acme"}])
def test_no_verdict_goes_without_it(
    approval: Approval, verdict: str, proof: Mapping[str, str] | None
) -> None:
    edit = {"arguments": {"username": "new.hire", "security_level": 1}}
    values: Any = {"answer": {"result": None}, "edit": edit}.get(verdict, {})
    with pytest.raises(Forbidden, match="second factor of the last 5 minutes"):
        decide(approval, _with("bea", proof), verdict, reason="because", **values)
    assert seeds.untouched(approval)


def test_a_token_cannot_decide_it(approval: Approval, cast: Cast) -> None:
    form = {
        "verdict": "approve",
        "digest": approval.approval_digest,
        "confirm": confirmation.find_required_name(approval, None),
    }
    answer = Caller(cast.bea).post(f"/approvals/{approval.id}/decision", form)
    assert (answer.status_code, answer.json()["code"]) == (403, "step_up")
    assert seeds.untouched(approval)


def test_the_session_of_another_browser_is_not_confirmed(
    approval: Approval, phone: Phone, cast: Cast
) -> None:
    here, there = log_in(cast.bea), log_in(cast.bea)
    _confirm(here, approval, phone.code())
    assert send(there, approval, "approve").status_code == 403
    assert seeds.untouched(approval)


def test_what_one_person_confirmed_does_not_count_for_the_next_in_the_browser(
    approval: Approval, phone: Phone, cast: Cast
) -> None:
    reviewers("cora")
    browser = log_in(cast.bea)
    _confirm(browser, approval, phone.code())
    browser.force_login(User.objects.get(username="cora"))
    assert send(browser, approval, "approve").status_code == 403
    browser.force_login(cast.bea)
    assert send(browser, approval, "approve").status_code == 403
    assert seeds.untouched(approval)


def test_guesses_are_limited(approval: Approval, phone: Phone, cast: Cast) -> None:
    pages = [_confirm(log_in(cast.bea), approval, "000000") for _ in range(6)]
    assert "Too many wrong codes" in pages[-1]
    assert "Too many wrong codes" not in pages[-2]
    browser = log_in(cast.bea)
    has(_confirm(browser, approval, phone.code()), "Too many wrong codes")
    assert send(browser, approval, "approve").status_code == 403


def test_a_person_without_a_factor_is_told_where_to_add_one(approval: Approval, cast: Cast) -> None:
    shows(log_in(cast.bea), approval, "You have none yet", "/account/#second")
    hides = ("Confirm that it is you",)
    shows(log_in(cast.ada), approval, hides=hides)  # who may not decide it


@pytest.mark.parametrize("page", ["https://evil.example/", "//evil.example/", "javascript:1", ""])
def test_a_confirmation_leads_to_no_other_site(phone: Phone, cast: Cast, page: str) -> None:
    answer = log_in(cast.bea).post("/account/second/", {"code": phone.code(), "next": page})
    assert answer["Location"] == "/account/"


@pytest.mark.parametrize("verdict", ["approve", "deny"])
@pytest.mark.parametrize("proof", [None, {"how": "password"}, _proof])
def test_the_worker_refuses_a_statement_without_it(
    approval: Approval, monkeypatch: pytest.MonkeyPatch, proof: Any, verdict: str
) -> None:
    """As a web process would sign that does not know the rule."""
    proof = _proof(400) if callable(proof) else proof
    monkeypatch.setattr(votes_of_people, "check_step_up", lambda *_: None)
    decide(approval, _with("bea", proof), verdict, reason="because")
    approval.refresh_from_db()
    monkeypatch.undo()
    checks = (seeds.verify_decision, seeds.verify_approval)
    for verify in checks if verdict == "approve" else checks[:1]:
        with pytest.raises(NotConfirmed, match="fresh second factor"):
            verify(approval)


def test_each_vote_needs_it_and_the_worker_checks_each(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = asked(TWO)
    reviewers("cora")
    decide(approval, _with("bea", _proof()))
    with pytest.raises(Forbidden, match="last 5 minutes"):
        decide(approval, _with("cora", None))
    decide(approval, _with("cora", _proof()))
    approval.refresh_from_db()
    seeds.verify_decision(approval)
    vote = Vote.objects.get(person="bea")
    assert vote.authenticated is not None
    assert vote.authenticated["how"] == "password+totp"
    for authenticated in (None, {"how": "password"}):
        Vote.objects.filter(person="bea").update(authenticated=authenticated)
        with pytest.raises(NotConfirmed, match="not the one that they signed"):
            seeds.verify_decision(approval)


def test_a_first_vote_without_it_does_not_count(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = asked(TWO)
    reviewers("cora")
    with monkeypatch.context() as patch:
        patch.setattr(votes_of_people, "check_step_up", lambda *_: None)
        decide(approval, _with("bea", None))
    decide(approval, _with("cora", _proof()))
    approval.refresh_from_db()
    with pytest.raises(NotConfirmed, match="bea, who voted, gave no fresh second factor"):
        seeds.verify_decision(approval)


def test_requests_without_the_rule_are_decided_as_before(cast: Cast) -> None:
    approval = asked("rules: [{name: Calm, reason: required}]")
    decide(approval, Actor(person="bea"), reason="because")
    approval.refresh_from_db()
    seeds.verify_decision(approval)
    assert '"authenticated"' not in (approval.statement or "")
    assert Vote.objects.get().authenticated is None
    assert "step_up" not in (approval.rule or ""), "older releases read the row"
