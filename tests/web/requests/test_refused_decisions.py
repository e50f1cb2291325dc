"""Refused decisions on the pages of all kinds of requests, and their error texts."""

import pytest
from django.test import Client

from approvals.accounts.people import create_person
from approvals.models import Request
from approvals.policy import Group
from tests.support.cast import PASSWORD
from tests.support.office import Office
from tests.support.pages import has, log_in, send, shows, text_of

WORDS = {"reason": "my own words"}
# By kind, what each form sends; the first two decide differently.
WAYS: dict[str, dict[str, dict[str, str]]] = {
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


@kinds
def test_the_requester_reads_and_does_not_decide(kind: str, asked: Request, ada: Client) -> None:
    hides = [f"/{way}/" for way in WAYS[kind]]
    shows(ada, asked, "You may read this, but not", hides=hides)
    for way, form in WAYS[kind].items():
        page = text_of(send(ada, asked, way, **form), 403)
        has(page, "started this run, so another person must decide")
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
            assert send(bea, asked, way, **form).status_code in (404, 422)
    asked.refresh_from_db()
    assert asked.status == "pending"


@kinds
def test_two_clicks_decide_once(kind: str, asked: Request, bea: Client) -> None:
    way, form = next(iter(WAYS[kind].items()))
    for _ in range(2):
        answer = send(bea, asked, way, **form)
        assert (answer.status_code, answer["Location"]) == (302, f"/a/{asked.id}/")


@kinds
def test_the_second_learns_who_was_first(kind: str, asked: Request, bea: Client) -> None:
    dan = log_in(create_person(username="dan", password=PASSWORD, groups=[Group.REVIEWERS]))
    (first, form), (second, words), *_ = WAYS[kind].items()
    assert send(bea, asked, first, **form).status_code == 302
    page = text_of(send(dan, asked, second, **words), 409)
    has(page, "<bdi>bea</bdi> was first", words["reason"])
