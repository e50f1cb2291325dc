"""Refused decisions on the pages of all kinds of requests, and their error texts."""

from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from approvals.accounts.people import create_person
from approvals.models import Request
from approvals.policy import Group
from tests.support.cast import PASSWORD
from tests.support.office import Office

WORDS = {"reason": "my own words"}
WAYS: dict[
    str, dict[str, dict[str, str]]
] = {  # by kind, what each form sends; the first two decide differently
    "approval": {"approve": {}, "deny": WORDS},
    "in_doubt": {
        "settle/give-up": WORDS,
        "settle/happened": {"result": '{"message_id": "x"}', **WORDS},
        "settle/run-again": WORDS,
    },
    "hold": {"continue": {}, "stop": WORDS},
}
kinds = pytest.mark.parametrize("kind", WAYS)


@pytest.fixture
def asked(kind: str, office: Office) -> Request:
    """A pending request of that kind, in a run of Ada's."""
    if kind == "hold":
        return office.held()
    return (
        office.in_doubt_request(office.in_doubt())
        if kind == "in_doubt"
        else office.request(office.start())
    )


def _send(client: Client, request: Request, way: str, form: dict[str, str]) -> HttpResponse:
    sent: Any = client.post(f"/a/{request.id}/{way}/", {"digest": request.request_digest, **form})
    return sent  # type: ignore[no-any-return]


@kinds
def test_the_requester_reads_and_does_not_decide(kind: str, asked: Request, ada: Client) -> None:
    page = ada.get(f"/a/{asked.id}/").content.decode()
    assert "You may read this, but not" in page
    for way, form in WAYS[kind].items():
        assert f"/{way}/" not in page
        answer = _send(ada, asked, way, form)
        assert answer.status_code == 403
        assert "started this run, so another person must decide" in answer.content.decode()
    asked.refresh_from_db()
    assert asked.status == "pending"


@kinds
def test_a_get_decides_nothing(kind: str, asked: Request, bea: Client) -> None:
    for way in WAYS[kind]:
        answer = bea.get(f"/a/{asked.id}/{way}/", {"digest": asked.request_digest})
        assert answer.status_code == 405
    asked.refresh_from_db()
    assert asked.status == "pending"


@kinds
def test_a_way_of_another_kind_is_refused(kind: str, asked: Request, bea: Client) -> None:
    for other, ways in WAYS.items():
        for way, form in ways.items() if other != kind else ():
            assert _send(bea, asked, way, form).status_code in (404, 422)
    asked.refresh_from_db()
    assert asked.status == "pending"


@kinds
def test_two_clicks_decide_once(kind: str, asked: Request, bea: Client) -> None:
    way, form = next(iter(WAYS[kind].items()))
    for _ in range(2):
        answer = _send(bea, asked, way, form)
        assert (answer.status_code, answer["Location"]) == (302, f"/a/{asked.id}/")


@kinds
def test_the_second_learns_who_was_first(kind: str, asked: Request, bea: Client) -> None:
    dan = Client()
    dan.force_login(create_person(username="dan", password=PASSWORD, groups=[Group.REVIEWERS]))
    (first, form), (second, words), *_ = WAYS[kind].items()
    assert _send(bea, asked, first, form).status_code == 302
    answer = _send(dan, asked, second, words)
    assert answer.status_code == 409
    page = answer.content.decode()
    assert "<bdi>bea</bdi> was first" in page
    assert words["reason"] in page
