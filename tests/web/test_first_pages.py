"""The first page of each person, the navigation around pages, and the overview of admins."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals.models import Approval
from approvals.people import accounts
from approvals.reads import pending_ages
from approvals.rules.policy import Group
from approvals.web.pages import navigation
from runtime.models import KillSwitch, Run, WorkerProcess
from runtime.web import installation
from tests.support.office import Office
from tests.support.pages import has, log_in, queries_at_most, shows, text
from tests.support.seeds import Cast


def _first(client: Client) -> str:
    return str(client.get("/")["Location"])


def test_each_person_starts_where_their_work_is(
    ada: Client, bea: Client, cyril: Client, admin: Client, cast: Cast, office: Office
) -> None:
    firsts = [_first(client) for client in (ada, bea, cyril, admin)]
    assert firsts == ["/mine/", "/inbox/", "/runs/", "/overview/"]
    accounts.set_groups("bea", {Group.REVIEWERS, Group.REQUESTERS}, actor=None)
    assert _first(bea) == "/mine/"
    office.start()
    assert _first(bea) == "/inbox/"


def test_the_navigation_shows_what_a_person_may_open(
    bea: Client, cyril: Client, admin: Client, asked: Approval
) -> None:
    count = '<span class="count num" data-count="mine">1</span>'
    shows(bea, "/agents/", count, hides=['href="/overview/"', 'href="/people/"'])
    shows(bea, "/inbox/", count)
    none = ["Inbox", 'href="/api/v1/docs"', 'href="/people/"']
    shows(cyril, "/runs/", "You have no rights yet", "<bdi>admin</bdi>", hides=none)
    shows(admin, "/agents/", 'href="/overview/"', hides=["data-count"])
    for path in ("/nowhere/", f"/runs/{uuid4()}/"):
        shows(bea, path, "or you don't have access", 'href="/runs/"', status=404)
        shows(admin, path, "There is no such page.", hides=["Ask an admin"], status=404)
    has(text(Client(), "/nowhere/", 404), hides=["<nav"])


def test_the_overview_counts_runs_and_says_what_needs_an_admin(
    bea: Client, admin: Client, office: Office
) -> None:
    waiting, failed, parked = office.start(), uuid4(), office.start()
    office.in_doubt()
    Approval.objects.filter(run=waiting).update(created_at=timezone.now() - timedelta(days=2))
    row = Run.objects.get(id=waiting)
    row.id, row.status, row.ended_at = failed, "failed", timezone.now()
    row.save(force_insert=True)
    row.id, row.ended_at = uuid4(), timezone.now() - timedelta(days=3)
    row.save(force_insert=True)
    Run.objects.filter(id=parked).update(status="quarantined")
    KillSwitch.objects.create(agent="hr_onboarding", reason="Too <eager>.", stopped_by="admin")
    needs = ("1 run in quarantine", "1 run failed in the last 24", "1 call in doubt")
    stopped = ("is stopped<", "Too &lt;eager&gt;.")
    with queries_at_most(18):
        page = shows(admin, "/overview/", *needs, *stopped, hides=["Nothing needs an admin"])
    has(
        page,
        'Waiting for people</a></dt><dd class="num">2<',
        '1 to 7 days</a></dt><dd class="num">1 ',
    )
    has(page, 'Live workers</dt><dd class="num">1<', "The sweeper is late")
    office.heartbeat.stop()
    WorkerProcess.objects.update(beat_at=timezone.now() - timedelta(seconds=20))
    shows(admin, "/overview/", "No worker is alive", hides=["the time under “95 %”"])
    text(bea, "/overview/", 404)


def test_the_links_of_the_overview_lead_to_exactly_what_they_count(
    cast: Cast, office: Office
) -> None:
    """Also for an admin who decides some of the requests, which the tab of other people's leaves out."""
    accounts.set_groups("admin", {Group.ADMINS, Group.REVIEWERS}, actor=None)
    now = timezone.now()
    doubt = office.in_doubt_request(office.in_doubt()).id
    soon, later = (office.request(office.start()) for _ in range(2))
    for approval, hours in ((soon, 0.5), (later, 2)):
        Approval.objects.filter(id=approval.id).update(expires_at=now + timedelta(hours=hours))
    old, failed, parked = (Run.objects.get(id=office.failed()) for _ in range(3))
    Run.objects.filter(id=old.id).update(ended_at=now - timedelta(hours=25))
    Run.objects.filter(id=parked.id).update(status="quarantined", ended_at=None)
    admin = log_in(cast.admin)
    page = text(admin, "/overview/")
    for words, ids in (
        ("1 call in doubt", [doubt]),
        ("1 request expires within an hour", [soon.id]),
        ("1 run failed in the last 24 hours", [failed.id]),
        ("Failed, last 24 hours", [failed.id]),
        ("1 run in quarantine", [parked.id]),
    ):
        (link,) = re.findall(rf'href="([^"]+)">{words}', page)
        shown = re.findall(
            r'(?:data-id="|class="t" href="/runs/)([\w-]+)', text(admin, link.replace("&amp;", "&"))
        )
        assert shown == [str(one) for one in ids], words


def test_the_count_of_the_inbox_stays_beside_a_page_s_own_waiting_rows(
    bea: Client, asked: Approval
) -> None:
    for path in ("/policies/", "/mine/", "/allowances/"):
        shows(bea, path, '<span class="count num" data-count="mine">1</span>')


# Search


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


# The manual


@pytest.fixture
def manual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    caches = (installation._list_pages, installation._render_page)
    monkeypatch.setattr(installation, "DOCS", tmp_path)
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


def test_links_lead_to_the_pages_here_with_their_titles(manual: Path) -> None:
    (manual / "next.md").write_text("# Next")
    (manual / "README.md").write_text(
        '# Start\n\n[On](next.md "The next page") [Code](../code.py "A file") [Web](https://a.example)'
    )
    title, html = installation._render_page("README")
    assert title == "Start"
    assert '<a href="/manual/next/" title="The next page">On</a> <a>Code</a>' in html
    assert '<a href="https://a.example" rel="noreferrer">Web</a>' in html
