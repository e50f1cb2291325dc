"""The inbox and the start page."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from approvals.models import Request
from approvals.queries import inbox as lists
from runtime.core.enums import GateKind
from tests.support import seeds
from tests.support.office import BEA, Office
from tests.support.pages import has, in_order, queries_at_most, shows, text
from tests.support.seeds import Cast

Waiting = Callable[..., list[Request]]
CAUGHT_UP = "You're all caught up"


@pytest.fixture
def waiting(cast: Cast) -> Waiting:
    """Requests of one of Ada's runs, one for each expiry time."""

    def wait(*expires: datetime | None, **snapshot: Any) -> list[Request]:
        run = seeds.run()
        return seeds.opened(*(seeds.snapshot(run, expires_at=at, **snapshot) for at in expires))

    return wait


def _ids(page: str) -> list[str]:
    return re.findall(r'data-id="([^"]+)"', page)


def _refreshed(client: Client, query: str, status: int = 200) -> str:
    """The list as an open page asks for it."""
    return text(client, f"/inbox/?{query}", status, live=True)


def test_a_pending_row_is_for_those_who_may_decide(
    bea: Client, ada: Client, cyril: Client, office: Office, asked: Request
) -> None:
    sentence = "Set the privileges of newhire to 3"
    mine = 'Assigned to me <span class="num" data-count="mine">1</span>'
    row = (sentence, "Medium risk", "<bdi>hr_onboarding</bdi>", "run started by <bdi>ada</bdi>")
    shows(bea, "/inbox/", mine, *row, f"/a/{asked.id}/")
    others = "1 action waits for other people"
    shows(ada, "/inbox/", CAUGHT_UP, others, hides=[sentence])
    doubt = office.in_doubt_request(office.in_doubt())
    shows(bea, "/inbox/", "In doubt", f"/a/{doubt.id}/", "<title>Inbox (2)")
    shows(cyril, "/inbox/", hides=[sentence, "In doubt", "other people"])


def test_requests_are_sorted_by_expiry_below_headings(bea: Client, waiting: Waiting) -> None:
    now = timezone.now()
    never, later, soon = waiting(None, now + timedelta(days=3), now + timedelta(minutes=5))
    parts = ("Expires within 10 minutes", str(soon.id), ">Expires after today<", str(later.id))
    in_order(text(bea, "/inbox/"), *parts, "No due date", str(never.id))


def test_the_pager_leads_to_the_rest_once(bea: Client, waiting: Waiting) -> None:
    now = timezone.now()
    made = waiting(*[now + timedelta(hours=hours // 2) for hours in range(50)], *[None] * 10)
    first = text(bea, "/inbox/?q=privileges")
    link = re.search(r'href="\?(q=privileges&amp;cursor=[^"]+)"', first)
    assert link is not None
    second = text(bea, f"/inbox/?{link[1].replace('&amp;', '&')}")
    seen = _ids(first) + _ids(second)
    assert (len(_ids(first)), len(_ids(second))) == (50, 10)
    assert set(seen) == {str(one.id) for one in made}
    has(second, hides=['href="?q=privileges&amp;cursor='])
    for query in ("cursor=nonsense", "view=nonsense"):
        text(bea, f"/inbox/?{query}", 404)


def test_requests_for_others_have_a_list(bea: Client, ada: Client, waiting: Waiting) -> None:
    open_, done = waiting(None, None)
    seeds.decide(done, BEA, "deny", "Not today.")
    assert _ids(text(ada, "/inbox/?view=others")) == [str(open_.id)]


def test_each_empty_list_says_which_kind_of_empty_it_is(bea: Client, waiting: Waiting) -> None:
    shows(bea, "/inbox/", CAUGHT_UP, "its request appears here", "See the runs")
    first, second = waiting(None, None)
    shows(bea, "/inbox/?q=nowhere", "No match", "Clear the filter", hides=[CAUGHT_UP])
    for request in (second, first):
        seeds.decide(request, BEA, "deny", "Not today.")
    last = ("Last decision by <bdi>bea</bdi> just now", f"/a/{first.id}/")
    shows(bea, "/inbox/", *last, hides=[f"/a/{second.id}/"])


def test_a_filter_that_cannot_be_read_says_why_and_stays(bea: Client, waiting: Waiting) -> None:
    waiting(None)
    wrong = 'aria-invalid="true" aria-describedby="q-problem"'
    for q, words in (
        ("x" * 201, "must be at most 200 characters"),
        ("x " * 13, "must be at most 12 words"),
        ("risk:enormous", "must name one of the risks"),
        ("%00", "must not contain a null character"),
    ):
        shows(bea, f"/inbox/?q={q}", words, wrong, hides=["Set the privileges"], status=422)


def test_an_open_page_gets_its_rows_outcomes(bea: Client, cyril: Client, waiting: Waiting) -> None:
    open_, done = waiting(None, None)
    seeds.decide(done, BEA)
    known = f"known={open_.id},{done.id}"
    answer = bea.get(f"/inbox/?{known}", headers={"HX-Request": "true"})
    assert "HX-Request" in answer["Vary"]
    page = answer.content.decode()
    assert page.lstrip().startswith('<div id="list">')
    rows, closed = page.split("data-closed")
    assert (_ids(rows), _ids(closed)) == ([str(open_.id)], [str(done.id)])
    has(closed, "Approved", "<bdi>bea</bdi>")
    assert _ids(_refreshed(cyril, known)) == []  # he may not read them
    _refreshed(cyril, "known=nonsense", 404)


def test_the_inbox_takes_few_queries(bea: Client, admin: Client, waiting: Waiting) -> None:
    made = waiting(*[None] * 60)
    waiting(None, kind=GateKind.IN_DOUBT)
    seeds.decide(made[0], BEA)
    known = ",".join(str(one.pk) for one in made[:50])
    for client in (bea, admin):
        for view in lists.View:
            with queries_at_most(8):
                text(client, f"/inbox/?view={view}&q=privileges")
            with queries_at_most(8):
                _refreshed(client, f"view={view}&known={known}")
