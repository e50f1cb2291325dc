"""A request that needs several people: what its page and the inbox say, and what a vote answers."""

import re
from datetime import timedelta
from threading import Event

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals.models import Approval
from approvals.people import accounts
from approvals.port.adapter import ApprovalService
from approvals.rules.policy import Group
from runtime.ports.access import Actor
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds
from tests.support.office import Office
from tests.support.pages import has, log_in, send, shows, text, text_of
from tests.support.seeds import Cast

ATTACK = "<i>Two</i>"


@pytest.fixture
def request_of_two(cast: Cast) -> Approval:
    reviewers("cora", "dan")
    return asked(f"rules: [{{name: {ATTACK}, quorum: 2}}]", risk="low")


def inbox(client: Client, view: str = "mine") -> str:
    return client.get(reverse("inbox"), {"view": view}).content.decode()


def test_page_and_inbox_show_who_approved_and_who_could(
    bea: Client, request_of_two: Approval
) -> None:
    approval = request_of_two
    seeds.decide(approval, Actor(person="cora"), reason="Looks right")
    shows(
        bea,
        approval,
        "1 of 2 approvals",
        "cora",
        "Looks right",
        "bea, dan",
        "&lt;i&gt;Two",
        "policy version 2",
        hides=[ATTACK, "Too few people are left", "Withdraw"],
    )
    assert "1 of 2 approvals" in inbox(bea)


def test_a_vote_says_that_it_waits_and_can_be_withdrawn(
    bea: Client, request_of_two: Approval
) -> None:
    approval = request_of_two
    form = {"digest": approval.approval_digest, "reason": ""}
    said = bea.post(reverse("approve", args=[approval.id]), form, follow=True).content.decode()
    assert "Your approval is recorded (1 of 2). Other people must approve too." in said
    shows(bea, approval, "Withdraw my approval", hides=["btn approve"])
    assert "No requests" not in inbox(bea, "others")
    assert str(approval.id) in inbox(bea, "others")
    assert str(approval.id) not in inbox(bea)
    again = bea.post(reverse("approve", args=[approval.id]), form)
    assert again.status_code == 409
    assert "bea has already approved this request" in again.content.decode()
    bea.post(reverse("undo", args=[approval.id]))
    shows(bea, approval, "0 of 2 approvals", "btn approve")


def test_a_request_that_too_few_can_decide_warns(bea: Client, request_of_two: Approval) -> None:
    for name in ("cora", "dan"):
        accounts.disable(name, actor=None)
    shows(bea, request_of_two, "Too few people are left to approve this", "Only <bdi>bea</bdi>")
    shows(bea, request_of_two, "on the page People: ask <bdi>admin</bdi>")
    ApprovalService().look_ahead(Event())
    assert "too few people left" in inbox(bea)
    admin = log_in(User.objects.get(username="admin"))
    shows(admin, "/overview/", "Too few people are left to decide 1 request")
    assert str(request_of_two.id) in admin.get("/inbox/?view=all&q=next:stuck").content.decode()


def test_a_request_of_an_absent_person_says_when_they_are_back(bea: Client, cast: Cast) -> None:
    """And the deputy, who started the run, is warned of when chosen."""
    approval = asked("rules: [{name: Only bea, people: [bea]}]", expires_at=seeds.moment(3600))
    now = timezone.now()
    days = {"starts": f"{now:%Y-%m-%d}", "ends": f"{now + timedelta(days=10):%Y-%m-%d}"}
    form = {"deputy": "ada", **days}
    announced = bea.post("/account/away/", form, follow=True)
    has(text_of(announced), "ada decides in your place. Not in runs that ada starts")
    away = "<bdi>bea</bdi> is away until <time"
    shows(log_in(cast.ada), approval, away, hides=["No person who may decide is left"])


STAGES = """
rules:
  - name: Two stages
    reason: required
    stages: [{people: [cora]}, {people: [bea]}]
"""


def test_a_reviewer_of_a_later_stage_is_told_whose_turn_it_is(bea: Client, cast: Cast) -> None:
    reviewers("cora")
    approval = asked(STAGES)
    waits = "Your turn comes after <bdi>cora</bdi>"
    shows(bea, approval, waits, "btn deny", hides=["btn approve", "data-edit"])
    seeds.decide(approval, Actor(person="cora"), reason="Looks right")
    shows(bea, approval, "btn approve", "data-edit", hides=[waits])
    cora = log_in(User.objects.get(username="cora"))
    shows(cora, approval, "Withdraw my approval", hides=["btn approve", "must approve now"])


def test_a_reason_that_the_rule_requires_is_asked_for_as_such(bea: Client, cast: Cast) -> None:
    approval = asked("rules: [{name: Say why, reason: required}]", risk="high")
    asks = "Reason (required by rule <bdi>Say why</bdi>)"
    form = {"digest": approval.approval_digest}
    second = text_of(bea.post(f"/a/{approval.id}/approve/", form))
    page = text(bea, approval)
    for shown in (second, text(bea, f"/a/{approval.id}/edit/")):
        assert re.search(r'<textarea id="reason"[^>]* required>', shown)
        has(shown, asks)
    has(page, asks)


def test_an_approval_without_its_reason_is_refused_as_one(bea: Client, cast: Cast) -> None:
    approval = asked("rules: [{name: Say why, reason: required}]", risk="low")
    refused = text_of(send(bea, approval, "approve"), 422)
    has(refused, "Not approved: the reason is required", "data-approves", hides=['name="preset"'])
    denial = text_of(send(bea, approval, "deny"), 422)
    has(denial, "Not decided: the reason is required", 'name="preset"', hides=["data-approves"])


LADDER = """
rules:
  - name: One
    match: {tool: set_privileges}
    people: [bea]
    escalate: [{people: [cora], groups: [reviewers], expires_after: 600}]
    on_expiry: CONSEQUENCE
"""
# The consequence, what the page says of it before and after, and the row of the inbox in the last step
ENDS = {
    "deny": (": then the call is denied", "receives the message that it expired", ""),
    "fail": ("is denied and the run fails", "and the run fails", ", then the run fails"),
    "{answer: {level: 7}}": (
        "gets the policy's answer",
        "this answer",
        ", then the policy's answer",
    ),
}


@pytest.mark.parametrize("consequence", ENDS)
def test_page_and_row_say_what_follows_if_no_person_decides(
    cast: Cast, bea: Client, consequence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, row = ENDS[consequence]
    reviewers("cora")
    due = seeds.moment(1200)
    approval = asked(LADDER.replace("CONSEQUENCE", consequence), expires_at=due)
    shows(bea, approval, "Escalates", "then <bdi>cora, reviewers</bdi> may decide too", before)
    assert "escalates <time" in inbox(bea)
    monkeypatch.setattr("django.utils.timezone.now", lambda: due - timedelta(seconds=60))
    shows(bea, approval, before, hides=["Escalates"])
    assert f"</time>{row}</span>" in inbox(bea)
    seeds.set_clock(monkeypatch, due + timedelta(seconds=1))
    ApprovalService().expire(approval.gate)
    shows(bea, approval, "Expired: no person decided in time", after)


def test_a_request_without_a_rule_names_the_first_who_could_decide(
    bea: Client, ada: Client, office: Office
) -> None:
    run = office.start()
    approval = office.request(run)
    shows(ada, approval, "Could decide now: <bdi>bea</bdi>.")
    shows(bea, approval, hides=["Could decide now"])  # who may decide knows it
    reviewers("cora", "dan", "eli", "finn")
    shows(ada, approval, "<bdi>bea, cora, dan and 2 more</bdi>")
    shows(ada, office.held(), "bea, cora, dan and 2 more")
    reviewers(*(f"person{number}" for number in range(10)))
    shows(ada, approval, "bea, cora, dan and at least ")
    send(bea, approval, "approve")
    shows(ada, approval, hides=["Could decide now"])


def test_who_started_a_run_is_not_asked_to_review_it(
    bea: Client, cast: Cast, office: Office
) -> None:
    seeds.person("rita", Group.REVIEWERS, Group.REQUESTERS)
    run = office.start(requester="rita")
    shows(bea, run, ">Review it</a>")
    shows(log_in(User.objects.get(username="rita")), run, ">See it</a>", hides=["Review it"])
