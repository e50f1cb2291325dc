"""The page of requesters: what became of their requests, and for whom the others wait."""

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import Approval
from tests.support.office import Office
from tests.support.pages import queries_at_most, shows, text


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
