"""The inbox and the start page."""

import base64
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals.models import Approval, SavedView
from approvals.people import preferences
from approvals.reads import inbox as lists
from approvals.reads.approval_views import ApprovalView
from approvals.reads.inbox import View
from approvals.reads.orders import Grouping, Order, Sort
from approvals.rights.principals import find_principal
from runtime.core.values.enums import GateKind, Risk
from runtime.errors import InvalidInput
from tests.support import seeds
from tests.support.office import BEA, Office, reseal
from tests.support.pages import has, in_order, queries_at_most, shows, text, text_of
from tests.support.seeds import Cast

Waiting = Callable[..., list[Approval]]
CAUGHT_UP = "You're all caught up"


@pytest.fixture
def waiting(cast: Cast) -> Waiting:
    """Requests of one of Ada's runs, one for each expiry time."""

    def wait(*expires: datetime | None, **snapshot: Any) -> list[Approval]:
        run = seeds.run()
        return seeds.opened(*(seeds.snapshot(run, expires_at=at, **snapshot) for at in expires))

    return wait


def _ids(page: str) -> list[str]:
    return re.findall(r'data-id="([^"]+)"', page)


def _refreshed(client: Client, query: str, status: int = 200) -> str:
    """The list as an open page asks for it."""
    return text(client, f"/inbox/?{query}", status, live=True)


def test_a_pending_row_is_for_those_who_may_decide(
    bea: Client, ada: Client, cyril: Client, office: Office, asked: Approval
) -> None:
    sentence = "Set the privileges of newhire to 3"
    mine = 'For me to decide <span class="num" data-count="mine">1</span>'
    row = (sentence, "Medium risk", ">Hr onboarding</bdi>", "run started by <bdi>ada</bdi>")
    shows(bea, "/inbox/", mine, *row, f"/a/{asked.id}/")
    others = "1 action waits for other people"
    shows(ada, "/inbox/", CAUGHT_UP, others, hides=[sentence])
    doubt = office.in_doubt_request(office.in_doubt())
    shows(bea, "/inbox/", "In doubt", f"/a/{doubt.id}/", "<title>Inbox (2)")
    shows(cyril, "/inbox/", hides=[sentence, "In doubt", "other people"])


def test_requests_are_sorted_by_expiry_below_headings(bea: Client, waiting: Waiting) -> None:
    now = timezone.now()
    never, later, soon = waiting(None, now + timedelta(days=3), now + timedelta(minutes=5))
    parts = ("Due within 10 minutes", str(soon.id), "Due in more than a day", str(later.id))
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
    assert set(seen) == {str(approval.id) for approval in made}
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
    for approval in (second, first):
        seeds.decide(approval, BEA, "deny", "Not today.")
    last = ("Last decision by <bdi>bea</bdi> just now", f"/a/{first.id}/")
    shows(bea, "/inbox/", *last, hides=[f"/a/{second.id}/"])


def test_a_filter_that_cannot_be_read_says_why_and_stays(bea: Client, waiting: Waiting) -> None:
    waiting(None)
    wrong = 'aria-describedby="q-help q-problem" aria-invalid="true"'
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
    has(rows, "data-same", hides=["Set the privileges"])
    has(closed, "Approved", "<bdi>bea</bdi>")
    assert _ids(_refreshed(cyril, known)) == []  # he may not read them
    _refreshed(cyril, "known=nonsense", 404)


def test_an_open_page_gets_whole_rows_only_with_a_new_one_among_them(
    bea: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LIMIT", 3)
    first, second, third, fourth = waiting(None, None, None, None)
    for known, more, whole in (
        ([first, second, third], "&more=", False),
        ([second, third], "&more=", True),  # a new one before them
        ([first, second], "&more=", False),  # the third one is of the next page
        ([first, second], "", True),
        ([fourth], "&more=", False),
    ):
        page = _refreshed(bea, f"known={','.join(str(approval.id) for approval in known)}{more}")
        assert ("Set the privileges" in page) == whole != ("data-same" in page), (known, more)


@pytest.mark.parametrize("sort", Sort)
@pytest.mark.parametrize("group", Grouping)
def test_each_order_is_the_same_in_pages_and_in_next_and_back(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, sort: Sort, group: Grouping
) -> None:
    now = timezone.now()
    dues = (None, now + timedelta(minutes=5), now + timedelta(hours=5), now + timedelta(days=5))
    of = seeds.run()
    many = [
        seeds.snapshot(of, expires_at=due, risk=risk)
        for due, risk in zip(dues * 2, [*Risk, *Risk, *Risk], strict=False)
    ]
    ways = [("b", "mail"), ("a", "z", "pay"), ("a", "mail"), ("b", "pay")]
    for place, approval in enumerate(seeds.opened(*many)):
        way = ways[place % 3]
        reseal([approval], path=list(way), tool=way[-1])
    monkeypatch.setattr(lists, "LIMIT", 3)
    bea, order = find_principal(BEA), Order(sort=sort, group=group)
    found, cursor = list[ApprovalView](), None
    while cursor or not found:
        page = lists.read_page(bea, view=View.MINE, order=order, cursor=cursor)
        found, cursor = [*found, *page.items], page.next
    assert len({item.id for item in found}) == len(many) == len(found)
    groups = order.groups(found)
    assert [item.id for one in groups for item in one.items] == [item.id for item in found]
    keys: dict[Sort, Callable[[ApprovalView], Any]] = {
        Sort.DEADLINE: lambda item: item.expires_at or now + timedelta(days=99),
        Sort.NEXT: lambda item: item.next_at or now + timedelta(days=99),
        Sort.AGE: lambda item: item.created_at,
        Sort.RISK: lambda item: [Risk.HIGH, Risk.MEDIUM, Risk.LOW].index(Risk(item.risk)),
    }
    for one in groups:
        assert [keys[sort](item) for item in one.items] == sorted(map(keys[sort], one.items))
    ids = [None, *(item.id for item in found), None]
    for place, item in enumerate(found):
        around = lists.find_previous_and_next(bea, item, order=order)
        assert around == (ids[place], ids[place + 2])
    parts = json.loads(base64.urlsafe_b64decode(f"{order.encode_cursor(found[0])}=="))
    for place in range(len(parts)):
        bad: Any
        for bad in (1e400, -1, 9**40, "\0", "\ud800", [], {}, True):
            wrong = json.dumps([*parts[:place], bad, *parts[place + 1 :]]).encode()
            code = base64.urlsafe_b64encode(wrong).decode()
            with pytest.raises(InvalidInput):
                lists.read_page(bea, view=View.MINE, order=order, cursor=code)


def test_a_tool_is_one_group_whichever_agents_call_it(bea: Client, waiting: Waiting) -> None:
    approvals = waiting(None, None, None)
    for approval, agent in zip(approvals, ("b", "a", "b"), strict=True):
        reseal([approval], path=[agent, "set_privileges"])
    (gate,) = waiting(None, kind=GateKind.LIMIT, call="")
    reseal([gate], tool="")
    page = text(bea, "/inbox/?group=kind")
    heads = re.findall(r'<h2 id="group-\d"><bdi>(.*?)</bdi></h2><span class="meta">(\d)', page)
    assert heads == [("Not about a tool", "1"), ("Set privileges", "3")]
    assert _ids(page) == [str(approval.id) for approval in (gate, *approvals)]


def test_the_order_stays_in_every_link_and_says_its_numbers(bea: Client, waiting: Waiting) -> None:
    first, second = waiting(None, None)
    query = "?sort=age&amp;group=kind"
    page = shows(bea, "/inbox/?sort=age&group=kind", f'href="/a/{first.id}/{query}"')
    has(page, '<h2 id="group-1"><bdi>Set privileges</bdi></h2>', 'value="age" selected')
    assert page.count("runs started by <bdi>ada</bdi>") == 1  # above both rows
    has(page, 'href="?view=others&amp;sort=age&amp;group=kind"')
    shows(bea, f"/a/{first.id}/?sort=age&group=kind", f'href="/a/{second.id}/{query}"')
    answer = bea.get("/inbox/?q=&sort=risk&group=", headers={"HX-Request": "true"})
    assert answer["HX-Replace-Url"] == "/inbox/?sort=risk"
    shows(bea, "/inbox/?sort=nonsense&group=nonsense", 'value="" selected>deadline')


def test_a_row_says_its_object_its_amount_and_its_risk_once(bea: Client, waiting: Waiting) -> None:
    now = timezone.now()
    (approval,) = waiting(now + timedelta(days=7, seconds=-60))
    reseal([approval], sentence="Pay 12500.50 euros to U+20123 for A-12345")
    page = text(bea, "/inbox/")
    row = page[page.index("data-id=") : page.index("</li>")]
    has(row, 'Pay 12<span class="g">500</span>.50 euros to U+20123 for A-12345', ">in 7 d<")
    assert row.count("High risk") == 2  # for the eye and for the ear


# Saved views


ADD = "/inbox/views/add/"


def test_a_view_is_saved_opened_and_deleted_by_its_owner_alone(bea: Client, ada: Client) -> None:
    for risk in ("high", "high", "low"):
        seeds.pending(requester="cyril", risk=risk)
    shows(bea, "/inbox/", hides=["Save this view"])  # it is the whole list
    form = {"q": "risk:high", "sort": "age", "group": ""}
    page = shows(bea, "/inbox/?q=risk:high&sort=age", "Save this view")
    for name in ("q", "sort"):
        has(page, f'type="hidden" name="{name}" value="{form[name]}"')
    to = bea.post(ADD, {"name": " Urgent <b> ", **form})["Location"]
    assert to == "/inbox/?q=risk%3Ahigh&sort=age"
    named = (
        r'<a href="([^"]+)" aria-current="page"><bdi>Urgent &lt;b&gt;</bdi> <span class="num">2<'
    )
    (link,) = re.findall(named, text(bea, to))
    assert link.replace("&amp;", "&") == to.removeprefix("/inbox/")
    shows(ada, "/inbox/", hides=["Urgent"])
    view = SavedView.objects.get()
    ada.post(f"/inbox/views/{view.id}/delete/")
    has(text(bea, to), f'action="/inbox/views/{view.id}/delete/"')
    bea.post(f"/inbox/views/{view.id}/delete/")
    shows(bea, "/inbox/", hides=["Urgent"])


def test_a_refused_name_says_the_limit_and_comes_back(bea: Client, cast: Cast) -> None:
    form = {"q": "risk:high", "name": "x" * 41}
    page = text_of(bea.post(ADD, form, follow=True))
    has(page, "Not saved: the name must have 1 to 40 visible characters.", f'value="{"x" * 41}"')
    for name in ("", "  ", "a\u202eb"):
        with pytest.raises(InvalidInput, match="visible"):
            preferences.save_view("bea", name, {})
    for number in range(preferences.MAX_VIEWS):
        preferences.save_view("bea", f"{number}", {})
    preferences.save_view("bea", "0", {"q": "again"})  # a name is saved again in its place
    with pytest.raises(InvalidInput, match="you have 20 views already"):
        preferences.save_view("bea", "one more", {})
    preferences.save_view("ada", "her first", {})


def test_twenty_views_cost_as_many_queries_as_none(bea: Client, cast: Cast) -> None:
    seeds.pending(requester="cyril")
    for number in range(preferences.MAX_VIEWS):
        preferences.save_view("bea", f"view {number}", {"q": f"tool:{number}", "sort": "risk"})
    preferences.save_view("bea", "view 0", {"q": "colour:red"})  # an operator that there is no more
    with queries_at_most(8):
        page = text(bea, "/inbox/?q=privileges&sort=risk&group=kind")
    in_order(page, 'tool:set_privileges"', 'by:cyril"', "view 0")
    has(page, 'value="risk:high"', 'value="agent:hr_onboarding"')


# Own requests


def test_a_requester_sees_what_became_of_their_requests(ada: Client, office: Office) -> None:
    waiting, denied, other = office.start(), office.start(), office.start(requester="bea")
    office.deny(denied, "Not <before> Monday.")
    ids = {run: Approval.objects.get(run=run).id for run in (waiting, denied, other)}
    page = shows(
        ada, "/mine/", "waits for <bdi>bea", "Not &lt;before&gt; Monday.", f"/a/{ids[waiting]}/",
        f"/a/{ids[denied]}/", f"/runs/{waiting}/", hides=[f"/a/{ids[other]}/", f"/runs/{other}/"],
    )  # fmt: skip
    assert '<span class="count num" data-count="mine">1</span>' in page  # hers to decide is Bea's
    assert page.index(str(ids[waiting])) < page.index(str(ids[denied]))


def test_a_person_without_runs_reads_what_to_do(ada: Client, cyril: Client) -> None:
    shows(ada, "/mine/", "No request of your runs waits", "Choose an agent")
    shows(cyril, "/mine/", "You have not started a run yet", hides=["Choose an agent"])


def test_the_page_costs_as_many_queries_beside_more_requests(ada: Client, office: Office) -> None:
    for _ in range(6):
        office.start()
    text(ada, "/mine/")
    with CaptureQueriesContext(connection) as queries:
        text(ada, "/mine/")
    for _ in range(6):
        office.start()
    with queries_at_most(len(queries)):
        text(ada, "/mine/")
