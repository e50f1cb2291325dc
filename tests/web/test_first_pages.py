"""The first page of each person, the navigation around pages, and the overview of admins."""

import re
from datetime import timedelta
from uuid import uuid4

from django.test import Client
from django.utils import timezone

from approvals.models import Approval
from approvals.people import accounts
from approvals.rules.policy import Group
from runtime.models import KillSwitch, Run, WorkerProcess
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
