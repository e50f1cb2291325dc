"""The search over everything: each reader finds the rows that they may read, and no others."""

import re
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import Approval
from approvals.reads import pending_ages
from approvals.web.pages import navigation
from tests.support.office import Office
from tests.support.pages import queries_at_most, shows, text


def test_an_admin_finds_pages_people_requests_and_runs(admin: Client, office: Office) -> None:
    run, closed = office.start(), office.start()
    office.deny(closed, "no")
    pending, past = (Approval.objects.get(run=one) for one in (run, closed))
    for words, url in (
        ("kill", "/stops/"),
        ("bea", "/people/?q=bea"),
        ("set_priv", f"/a/{pending.id}/"),
        ("set_priv", f"/a/{past.id}/"),
        ("agent:hr_onboarding", f"/runs/{run}/"),
        (str(run)[:8], f"/runs/{run}/"),
    ):
        shows(admin, f"/search/?q={words}", f'href="{url}"')
    assert text(admin, "/search/?q=set_priv").count(f'href="/a/{pending.id}/"') == 1
    shows(admin, f"/search/?q={uuid4()}", "Nothing that you may read matches")
    shows(admin, "/search/", "Searches pages")
    shows(admin, f"/search/?q={'x' * 201}", "must have at most 200 characters", status=422)


def test_agents_are_found_by_those_who_may_read_them(
    admin: Client, cyril: Client, published: None
) -> None:
    shows(admin, "/search/?q=hr_on", 'href="/agents/hr_onboarding/"')
    shows(cyril, "/search/?q=hr_on", hides=["/agents/hr_onboarding/"])


def test_others_find_only_what_they_may_read(bea: Client, cyril: Client, office: Office) -> None:
    run = office.start()
    approval = Approval.objects.get(run=run)
    shows(bea, "/search/?q=set_priv", f"/a/{approval.id}/")
    shows(bea, "/search/?q=ada", hides=["/people/?q=ada"])
    shows(bea, "/search/?q=polic", '<a class="t" href="/policies/"')
    shows(bea, "/search/?q=allow", '<a class="t" href="/allowances/"')
    shows(bea, "/search/?q=stop", hides=['<a class="t" href="/stops/"'])
    for words in ("set_priv", "hr_onboarding", str(run)[:8], "ada"):
        page = shows(cyril, f"/search/?q={words}", hides=[str(run), str(approval.id)])
        assert "/people/" not in page


def test_a_search_reads_the_newest_runs_and_the_next_requests(
    admin: Client, bea: Client, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(navigation, "SEARCHED_RUNS", 1)
    monkeypatch.setattr(pending_ages, "WINDOW", 1)
    old, new = office.start(), office.start(requester="bea")
    first, second = (Approval.objects.get(run=run).id for run in (old, new))
    page = shows(admin, "/search/?q=hr_on", f"/runs/{new}/", hides=[f"/runs/{old}/"])
    assert "newest 1 runs" in page
    assert 'href="/runs/?q=hr_on"' in page
    assert 'href="/inbox/?view=all&amp;q=hr_on"' in page
    shows(bea, "/search/?q=set_priv", f"/a/{first}/", hides=[f"/a/{second}/"])
    shows(admin, f"/search/?q={old}", f"/runs/{old}/", hides=[f"/runs/{new}/"])


def test_a_search_costs_as_many_queries_beside_more_rows(admin: Client, office: Office) -> None:
    office.start()
    text(admin, "/search/?q=hr")
    with CaptureQueriesContext(connection) as queries:
        text(admin, "/search/?q=hr")
    for _ in range(6):
        office.start()
    with queries_at_most(len(queries)):
        text(admin, "/search/?q=hr")


@pytest.mark.parametrize("page", ["/inbox/", "/decisions/", "/runs/", "/people/"])
def test_each_search_shows_the_filters_that_it_knows(admin: Client, page: str) -> None:
    refusal = admin.get(page, {"q": "zz:x"}).content.decode()
    known = re.findall(r"[a-z]+:", refusal.partition("(known are ")[2].partition(")")[0])
    hints = text(admin, page).partition('id="q-help"')[2].partition("</p>")[0]
    assert re.findall("<code>(.*?)</code>", hints) == known != []


@pytest.mark.parametrize("page", ["/agents/", "/tools/"])
def test_a_search_without_filters_names_none(admin: Client, page: str) -> None:
    hints = text(admin, page).partition('id="q-help"')[2].partition("</p>")[0]
    assert hints.startswith(">Searches names")
    assert "Filters" not in hints
