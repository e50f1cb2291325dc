"""The page of one approval: the call and its context."""

from django.test import Client
from pytest_django import DjangoAssertNumQueries

from approvals.models import Request
from runtime.models import Run
from tests.support.office import Office
from tests.support.pages import has, in_order, send, shows


def test_the_page_shows_the_call_and_its_context(bea: Client, asked: Request) -> None:
    page = shows(
        bea,
        asked,
        "not given; the tool's default is",
        "<bdi>hr_onboarding</bdi> has not declared its steps",
        "<details",
        f'form="deny" formaction="/a/{asked.id}/approve/" formnovalidate',
        hides=["Requested together", "is stopped"],  # the call stands alone, the run goes on
    )
    in_order(page, "<bdi>hr_onboarding</bdi>", "<bdi>account_agent</bdi>")
    in_order(page, "What will happen", "Conversation")
    in_order(page, "/deny/", 'name="reason"', "/approve/")
    assert page.count(asked.request_digest) == 1  # one form, two buttons
    _, _, around = page.partition("Already done")
    in_order(around, "<bdi>create_account</bdi>", "What comes next", "Create the account")
    in_order(page, 'id="what"', 'id="similar"', 'id="why"', 'id="around"')
    has(page.partition('id="why"')[2].partition('id="around"')[0], "written by the agent")
    Run.objects.filter(id=asked.run_id).update(status="quarantined", reason="not its own")
    shows(bea, asked, "The run of this call is stopped")


def test_shows_every_argument_whole_with_its_type(bea: Client, office: Office) -> None:
    long = "word " * 2_000 + "end"
    run = office.start(args={"username": "newhire", "security_level": 5, "note": long})
    words = ("Set the privileges of newhire to 5", "integer · 1 to 5", long, "Medium risk")
    shows(bea, office.request(run), *words)
    hostile = {"username": "<script>alert(1)</script>\u202egrace\u200b", "security_level": 1}
    request = office.request(office.start(args=hostile))
    shows(bea, request, "&lt;script&gt;", "⟦U+202E⟧", hides=["<script>", "\u202e", "\u200b"])


def test_calls_of_one_turn_are_shown_together_decided_separately(
    bea: Client, office: Office, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    office.approve(office.start())
    office.ask_twice()
    first, second = Request.objects.filter(run=office.start()).order_by("call")
    with django_assert_max_num_queries(15):
        page = shows(bea, first, "Compared with")
    other = "Set the privileges of another to 2"
    together = page[page.index("Requested together") : page.index("Progress")]
    has(together, f"/a/{second.id}/", other, "Waiting for a decision")
    around = page[page.index("Other pending calls") : page.index("What comes next")]
    has(around, "waiting for a person", hides=["No other call"])
    send(bea, first, "approve")
    page = shows(bea, second, "Waiting for a decision")
    has(page[page.index("Requested together") :], "Approved")
