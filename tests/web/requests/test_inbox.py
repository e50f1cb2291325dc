"""The inbox and the start page."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from approvals.decisions.decide import decide
from approvals.models import Request
from approvals.queries import inbox as lists
from runtime.core.enums import GateKind
from runtime.ports.access import Actor
from tests.support import seeds
from tests.support.cast import Cast
from tests.support.office import Office


def test_a_reviewer_starts_in_the_inbox(bea: Client) -> None:
    assert bea.get("/")["Location"] == "/inbox/"


def test_a_person_who_decides_nothing_starts_with_the_runs(cyril: Client, admin: Client) -> None:
    assert cyril.get("/")["Location"] == "/runs/"
    assert admin.get("/")["Location"] == "/runs/"


def test_a_pending_row_has_sentence_risk_path_and_requester(
    bea: Client, suspended: UUID, office: Office
) -> None:
    page = bea.get("/inbox/").content.decode()
    assert 'Assigned to me <span class="num" data-count="mine">1</span>' in page
    assert "Set the privileges of newhire to 3" in page
    assert "Medium risk" in page
    assert "<bdi>hr_onboarding</bdi>" in page
    assert "run started by <bdi>ada</bdi>" in page
    assert f"/a/{office.request(suspended).id}/" in page


def test_an_empty_inbox_explains_itself_and_the_next_step(bea: Client) -> None:
    page = bea.get("/inbox/").content.decode()
    assert "You're all caught up" in page
    assert "its request appears here" in page
    assert "See the runs" in page


def test_the_requester_hears_that_others_must_decide(ada: Client, suspended: UUID) -> None:
    page = ada.get("/inbox/").content.decode()
    assert "You're all caught up" in page
    assert "1 action waits for other people" in page
    assert "Set the privileges" not in page


def test_a_person_without_rights_sees_an_empty_inbox(cyril: Client, suspended: UUID) -> None:
    page = cyril.get("/inbox/").content.decode()
    assert "Set the privileges" not in page
    assert "other people" not in page


def test_gates_in_doubt_are_listed_for_those_who_may_see_them(
    bea: Client, cyril: Client, office: Office
) -> None:
    run = office.in_doubt()
    assert "In doubt" in (page := bea.get("/inbox/").content.decode())
    assert f"/a/{office.in_doubt_request(run).id}/" in page
    assert "You're all caught up" not in page
    assert "<title>Inbox (1)" in page
    assert "In doubt" not in cyril.get("/inbox/").content.decode()


def test_a_cursor_that_is_none_is_not_found(bea: Client) -> None:
    assert bea.get("/inbox/?cursor=nonsense").status_code == 404


@pytest.fixture
def waiting(cast: Cast) -> Callable[..., list[Request]]:
    """Requests of one of Ada's runs, one for each expiry time."""

    def wait(*expires: datetime | None, **snapshot: Any) -> list[Request]:
        run = seeds.run()
        return seeds.opened(*(seeds.snapshot(run, expires_at=at, **snapshot) for at in expires))

    return wait


def _decide(request: Request, verdict: str = "deny") -> None:
    decide(
        request=request.id,
        verdict=verdict,
        digest=request.request_digest,
        reason="Not today.",
        actor=Actor(person="bea"),
    )


def test_requests_are_sorted_by_expiry_below_headings(
    bea: Client, waiting: Callable[..., list[Request]]
) -> None:
    now = timezone.now()
    never, later, soon = waiting(None, now + timedelta(days=3), now + timedelta(minutes=5))
    page = bea.get("/inbox/").content.decode()
    parts = ["Expires within 10 minutes", str(soon.id), ">Expires after today<", str(later.id)]
    parts += ["No due date", str(never.id)]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


def test_the_pager_leads_to_the_rest_once(
    bea: Client, waiting: Callable[..., list[Request]]
) -> None:
    now = timezone.now()
    made = waiting(*[now + timedelta(hours=hours // 2) for hours in range(50)], *[None] * 10)
    first = bea.get("/inbox/?q=privileges").content.decode()
    link = re.search(r'href="\?(q=privileges&amp;cursor=[^"]+)"', first)
    assert link is not None
    second = bea.get(f"/inbox/?{link[1].replace('&amp;', '&')}").content.decode()
    seen = _ids(first) + _ids(second)
    assert (len(_ids(first)), len(_ids(second))) == (50, 10)
    assert set(seen) == {str(one.id) for one in made}
    assert 'href="?q=privileges&amp;cursor=' not in second


def test_requests_of_others_and_decided_ones_have_lists(
    bea: Client, ada: Client, waiting: Callable[..., list[Request]]
) -> None:
    open_, done = waiting(None, None)
    _decide(done)
    assert _ids(ada.get("/inbox/?view=others").content.decode()) == [str(open_.id)]
    decided = bea.get("/inbox/?view=decided").content.decode()
    assert _ids(decided) == [str(done.id)]
    assert "by <bdi>bea</bdi>" in decided
    assert bea.get("/inbox/?view=nonsense").status_code == 404


def test_yesterdays_decisions_are_not_listed_today(
    bea: Client, waiting: Callable[..., list[Request]]
) -> None:
    (done,) = waiting(None)
    _decide(done)
    Request.objects.filter(pk=done.id).update(decided_at=lists.midnight() - timedelta(seconds=1))
    assert "Nothing was decided today" in bea.get("/inbox/?view=decided").content.decode()


def test_each_empty_list_says_which_kind_of_empty_it_is(
    bea: Client, waiting: Callable[..., list[Request]]
) -> None:
    assert "its request appears here" in bea.get("/inbox/").content.decode()
    (done,) = waiting(None)
    filtered = bea.get("/inbox/?q=nowhere").content.decode()
    assert "No match" in filtered
    assert "Clear the filter" in filtered
    assert "You're all caught up" not in filtered
    _decide(done)
    assert "Last decision by <bdi>bea</bdi> just now" in bea.get("/inbox/").content.decode()


def test_an_empty_inbox_names_the_last_closed_request(
    bea: Client, waiting: Callable[..., list[Request]]
) -> None:
    first, second = waiting(None, None)
    _decide(second)
    _decide(first)
    nothing = bea.get("/inbox/").content.decode()
    assert f"/a/{first.id}/" in nothing
    assert f"/a/{second.id}/" not in nothing


@pytest.mark.parametrize(
    ("q", "words"),
    [
        ("x" * 201, "must be at most 200 characters"),
        ("x " * 13, "must be at most 12 words"),
        ("risk:enormous", "must name one of the risks"),
        ("\0", "must not contain a null character"),
    ],
)
def test_a_filter_that_cannot_be_read_says_why_and_stays(
    bea: Client, suspended: UUID, q: str, words: str
) -> None:
    answer = bea.get("/inbox/", {"q": q})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert words in page
    assert 'aria-invalid="true" aria-describedby="q-problem"' in page
    assert "Set the privileges" not in page


def test_an_open_page_gets_the_list_with_its_rows_outcomes(
    bea: Client, waiting: Callable[..., list[Request]]
) -> None:
    open_, done = waiting(None, None)
    _decide(done, "approve")
    answer = bea.get(f"/inbox/?known={open_.id},{done.id}", headers={"HX-Request": "true"})
    page = answer.content.decode()
    assert page.lstrip().startswith('<div id="list">')
    assert "HX-Request" in answer["Vary"]
    rows, closed = page.split("data-closed")
    assert (_ids(rows), _ids(closed)) == ([str(open_.id)], [str(done.id)])
    assert "Approved" in closed
    assert "<bdi>bea</bdi>" in closed


def test_a_row_that_a_person_may_not_read_is_not_sent(
    cyril: Client, waiting: Callable[..., list[Request]]
) -> None:
    (done,) = waiting(None)
    _decide(done)
    page = cyril.get(f"/inbox/?known={done.id}", headers={"HX-Request": "true"}).content.decode()
    assert _ids(page) == []
    bad = cyril.get("/inbox/?known=nonsense", headers={"HX-Request": "true"})
    assert bad.status_code == 404


@pytest.mark.parametrize("rows", [0, 5, 60])
@pytest.mark.parametrize("person", ["bea", "admin"])
def test_the_inbox_takes_eight_queries_at_most(
    request: pytest.FixtureRequest,
    waiting: Callable[..., list[Request]],
    django_assert_max_num_queries: DjangoAssertNumQueries,
    person: str,
    rows: int,
) -> None:
    client = request.getfixturevalue(person)
    if rows:
        made = waiting(*[None] * rows)
        waiting(None, kind=GateKind.IN_DOUBT)
        _decide(made[0])
    known = ",".join(str(one) for one in Request.objects.values_list("pk", flat=True)[:50])
    for view in lists.View:
        with django_assert_max_num_queries(8):
            assert client.get(f"/inbox/?view={view}&q=privileges").status_code == 200
        with django_assert_max_num_queries(8):
            client.get(f"/inbox/?view={view}&known={known}", headers={"HX-Request": "true"})


def _ids(page: str) -> list[str]:
    return re.findall(r'data-id="([^"]+)"', page)


def test_counting_stops_at_the_shown_limit(
    bea: Client, ada: Client, suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_COUNT", 0)
    page = bea.get("/inbox/").content.decode()
    assert "<title>Inbox (0+)" in page
    assert "Set the privileges of newhire to 3" in page
    assert "0+ action" in ada.get("/inbox/").content.decode()


def test_letters_that_pass_for_others_are_named_in_the_row(bea: Client, office: Office) -> None:
    office.start(args={"username": "p\u0430ypal", "security_level": 3})
    office.start(args={"username": "newhire", "security_level": 3, "note": "eve@paypa1.com"})
    page = bea.get("/inbox/").content.decode()
    assert page.count('class="odd"') == 2
    assert "mixes Latin and Cyrillic letters" in page
    assert "the digit 1, which looks like the letter l" in page


def test_todays_decisions_are_not_reported_as_gone(
    bea: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    known = f"known={office.request(suspended).id}"
    page = bea.get(f"/inbox/?view=decided&{known}", headers={"HX-Request": "true"})
    assert "data-closed" not in page.content.decode()
    page = bea.get(f"/inbox/?{known}", headers={"HX-Request": "true"})
    assert "data-closed" in page.content.decode()
