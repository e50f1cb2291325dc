"""A request that needs several people: what its page and the inbox say, and what a vote answers."""

import pytest
from django.test import Client
from django.urls import reverse

from approvals.accounts import people
from approvals.models import Request
from runtime.ports.access import Actor
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds
from tests.support.pages import shows
from tests.support.seeds import Cast

ATTACK = "<i>Two</i>"


@pytest.fixture
def request_of_two(cast: Cast) -> Request:
    reviewers("cora", "dan")
    return asked(f"rules: [{{name: {ATTACK}, quorum: 2}}]", risk="low")


def inbox(client: Client, view: str = "mine") -> str:
    return client.get(reverse("inbox"), {"view": view}).content.decode()


def test_page_and_inbox_show_who_approved_and_who_could(
    bea: Client, request_of_two: Request
) -> None:
    request = request_of_two
    seeds.decide(request, Actor(person="cora"), reason="Looks right")
    shows(
        bea,
        request,
        "1 of 2 approvals",
        "cora",
        "Looks right",
        "bea, dan",
        "&lt;i&gt;Two",
        "policy version 2",
        hides=[ATTACK, "cannot be approved any more", "Withdraw"],
    )
    assert "1 of 2 approvals" in inbox(bea)


def test_a_vote_says_that_it_waits_and_can_be_withdrawn(
    bea: Client, request_of_two: Request
) -> None:
    request = request_of_two
    form = {"digest": request.request_digest, "reason": ""}
    said = bea.post(reverse("approve", args=[request.id]), form, follow=True).content.decode()
    assert "Your approval is recorded (1 of 2). Other people must approve too." in said
    shows(bea, request, "Withdraw my approval", hides=["btn approve"])
    assert "No requests" not in inbox(bea, "others")
    assert str(request.id) in inbox(bea, "others")
    assert str(request.id) not in inbox(bea)
    again = bea.post(reverse("approve", args=[request.id]), form)
    assert again.status_code == 409
    assert "bea has already approved this request" in again.content.decode()
    bea.post(reverse("undo", args=[request.id]))
    shows(bea, request, "0 of 2 approvals", "btn approve")


def test_a_request_that_too_few_can_decide_warns(bea: Client, request_of_two: Request) -> None:
    for name in ("cora", "dan"):
        people.disable(name, actor=None)
    shows(bea, request_of_two, "This cannot be approved any more", "only bea could")
