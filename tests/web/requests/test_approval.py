"""The page of one approval: the call, its context, and the permissions to read and decide it."""

import random
from uuid import uuid4

from django.test import Client
from pytest_django import DjangoAssertNumQueries

from approvals.models import Request
from runtime.models import Run
from tests.support.office import Office
from tests.support.pages import has, in_order, send, shows, text


def test_the_page_shows_the_call_and_its_context(bea: Client, asked: Request) -> None:
    page = shows(
        bea,
        asked,
        "not given; the tool's default is",
        "<bdi>hr_onboarding</bdi> has not declared its steps",
        "<details",
        "written by the agent",
        'name="reason"',
        hides=["Requested together", "is stopped"],  # the call stands alone, the run goes on
    )
    in_order(page, "<bdi>hr_onboarding</bdi>", "<bdi>account_agent</bdi>")
    in_order(page, "What will happen", "Conversation")
    in_order(page, "/deny/", "/approve/")
    assert page.count(asked.request_digest) == 1  # one form, two buttons
    _, _, around = page.partition("Already done")
    in_order(around, "<bdi>create_account</bdi>", "What comes next", "Create the account")
    in_order(page, 'id="what"', 'id="similar"', 'id="why"', 'id="around"')
    has(page.partition('id="why"')[2].partition('id="around"')[0], "written by the agent")


def test_shows_every_argument_whole_with_its_type(bea: Client, office: Office) -> None:
    long = "word " * 2_000 + "end"
    run = office.start(args={"username": "newhire", "security_level": 5, "note": long})
    words = ("Set the privileges of newhire to 5", "integer · 1 to 5", long, "Medium risk")
    shows(bea, office.request(run), *words)


def test_calls_of_one_turn_are_shown_together_decided_separately(
    bea: Client, office: Office
) -> None:
    office.ask_twice()
    first, second = Request.objects.filter(run=office.start()).order_by("call")
    page = text(bea, first)
    other = "Set the privileges of another to 2"
    together = page[page.index("Requested together") : page.index("Progress")]
    has(together, f"/a/{second.id}/", other, "Waiting for a decision")
    around = page[page.index("Other pending calls") : page.index("What comes next")]
    has(around, "waiting for a person", hides=["No other call"])
    send(bea, first, "approve")
    page = shows(bea, second, "Waiting for a decision")
    has(page[page.index("Requested together") :], "Approved")
    second.refresh_from_db()
    assert second.status == "pending"


def test_hostile_arguments_are_text_with_visible_characters(bea: Client, office: Office) -> None:
    hostile = {"username": "<script>alert(1)</script>\u202egrace\u200b", "security_level": 1}
    request = office.request(office.start(args=hostile))
    shows(bea, request, "&lt;script&gt;", "⟦U+202E⟧", hides=["<script>", "\u202e", "\u200b"])


def test_a_person_without_rights_gets_not_found(cyril: Client, asked: Request) -> None:
    for place in (asked, f"/a/{uuid4()}/"):
        text(cyril, place, 404)
    for verdict in ("approve", "deny"):
        assert send(cyril, asked, verdict, reason="no").status_code == 404
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_reads_a_fixed_number_of_rows_however_long_the_run_is(
    bea: Client,
    office: Office,
    asked: Request,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    """A request with an earlier approval to compare with, and other calls of its turn."""
    office.approve(asked.run_id)
    office.ask_twice()
    request = Request.objects.filter(run=office.start()).order_by("call")[0]
    with django_assert_max_num_queries(15):
        shows(bea, request, "Compared with", "Requested together")


def test_says_that_the_run_is_stopped(bea: Client, asked: Request) -> None:
    Run.objects.filter(id=asked.run_id).update(status="quarantined", reason="not its own")
    shows(bea, asked, "The run of this call is stopped")


def test_letters_that_pass_for_others_are_named_beside_the_value(
    bea: Client, office: Office
) -> None:
    office.approve(office.start())
    run = office.start(args={"username": "newhire", "security_level": 3, "note": "p\u0430ypal"})
    page = text(bea, office.request(run))
    for part in (
        page.partition('class="args"')[2].partition("</dl>")[0],
        page.partition('id="similar"')[2],
    ):
        has(part, "mixes Latin and Cyrillic letters")


def test_a_hostile_pair_of_arguments_is_shown_whole(bea: Client, office: Office) -> None:
    chance = random.Random(1)
    notes = [" ".join(chance.choice("ab") for _ in range(2_000)) for _ in range(2)]
    office.approve(office.start(args={"username": "newhire", "note": notes[0]}))
    request = office.request(office.start(args={"username": "newhire", "note": notes[1]}))
    whole = "Shown whole: comparing the words would take too long."
    shows(bea, request, whole, f"<ins>{notes[1]}</ins>")
