"""The page of one approval: the call, its context, and the permissions to read and decide it."""

import random
from uuid import UUID, uuid4

from django.test import Client
from pytest_django import DjangoAssertNumQueries

from approvals.models import Request
from runtime.models import Run
from tests.support.office import Office


def _page(client: Client, request: Request) -> str:
    response = client.get(f"/a/{request.id}/")
    assert response.status_code == 200
    return response.content.decode()


def test_shows_every_argument_whole_with_its_type(bea: Client, office: Office) -> None:
    long = "word " * 2_000 + "end"
    run = office.start(args={"username": "newhire", "security_level": 5, "note": long})
    page = _page(bea, office.request(run))
    assert "Set the privileges of newhire to 5" in page
    assert "integer · 1 to 5" in page
    assert long in page
    assert "Medium risk" in page


def test_names_an_argument_that_is_left_to_its_default(
    bea: Client, office: Office, suspended: UUID
) -> None:
    page = _page(bea, office.request(suspended))
    assert "not given; the tool's default is" in page


def test_shows_the_path_from_root_to_leaf(bea: Client, office: Office, suspended: UUID) -> None:
    page = _page(bea, office.request(suspended))
    agents = [page.index(f"<bdi>{name}</bdi>") for name in ("hr_onboarding", "account_agent")]
    assert agents == sorted(agents)


def test_the_page_shows_earlier_and_planned_steps(
    bea: Client, office: Office, suspended: UUID
) -> None:
    page = _page(bea, office.request(suspended))
    done, following = page.index("Already done"), page.index("What comes next")
    assert done < page.index("<bdi>create_account</bdi>", done) < following
    assert page.index("Create the account") > following
    assert "<bdi>hr_onboarding</bdi> has not declared its steps" in page


def test_shows_the_other_open_call_of_the_turn(bea: Client, office: Office) -> None:
    office.ask_twice()
    run = office.start()
    first = Request.objects.filter(run=run).order_by("call")[0]
    page = _page(bea, first)
    around = page[page.index("Other pending calls") : page.index("What comes next")]
    assert "waiting for a person" in around
    assert "No other call" not in around


def test_calls_of_one_turn_are_shown_together_decided_separately(
    bea: Client, office: Office
) -> None:
    office.ask_twice()
    run = office.start()
    first, second = Request.objects.filter(run=run).order_by("call")
    page = _page(bea, first)
    together = page[page.index("Requested together") : page.index("Progress")]
    assert f"/a/{second.id}/" in together
    assert "Set the privileges of another to 2" in together
    assert "Waiting for a decision" in together
    bea.post(f"/a/{first.id}/approve/", {"digest": first.request_digest})
    page = _page(bea, second)
    assert "Approved" in page[page.index("Requested together") :]
    assert "Waiting for a decision" in page
    second.refresh_from_db()
    assert second.status == "pending"


def test_a_call_that_stands_alone_has_no_company(
    bea: Client, office: Office, suspended: UUID
) -> None:
    assert "Requested together" not in _page(bea, office.request(suspended))


def test_folds_the_conversation_and_says_who_wrote_it(
    bea: Client, office: Office, suspended: UUID
) -> None:
    page = _page(bea, office.request(suspended))
    assert "<details" in page
    assert "written by the agent" in page
    assert page.index("What will happen") < page.index("Conversation")


def test_hostile_arguments_are_text_with_visible_characters(bea: Client, office: Office) -> None:
    hostile = {"username": "<script>alert(1)</script>\u202egrace\u200b", "security_level": 1}
    page = _page(bea, office.request(office.start(args=hostile)))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "\u202e" not in page
    assert "\u200b" not in page
    assert "⟦U+202E⟧" in page


def test_offers_deny_before_approve_and_a_reason(
    bea: Client, office: Office, suspended: UUID
) -> None:
    page = _page(bea, office.request(suspended))
    assert page.index("/deny/") < page.index("/approve/")
    assert 'name="reason"' in page
    assert page.count(office.request(suspended).request_digest) == 1  # one form, two buttons


def test_the_requester_reads_it_and_hears_why_she_may_not_decide(
    ada: Client, office: Office, suspended: UUID
) -> None:
    page = _page(ada, office.request(suspended))
    assert "You may read this, but not decide it" in page
    assert "/approve/" not in page


def test_a_person_without_rights_gets_not_found(
    cyril: Client, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    assert cyril.get(f"/a/{request.id}/").status_code == 404
    for verdict in ("approve", "deny"):
        answer = cyril.post(
            f"/a/{request.id}/{verdict}/", {"digest": request.request_digest, "reason": "no"}
        )
        assert answer.status_code == 404
    request.refresh_from_db()
    assert request.status == "pending"


def test_an_unknown_approval_is_not_found(bea: Client) -> None:
    assert bea.get(f"/a/{uuid4()}/").status_code == 404


def test_reads_a_fixed_number_of_rows_however_long_the_run_is(
    bea: Client,
    office: Office,
    suspended: UUID,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    """A request with an earlier approval to compare with, and other calls of its turn."""
    office.approve(suspended)
    office.ask_twice()
    request = Request.objects.filter(run=office.start()).order_by("call")[0]
    with django_assert_max_num_queries(15):
        page = _page(bea, request)
    assert "Compared with" in page
    assert "Requested together" in page


def test_says_that_the_run_is_stopped(bea: Client, office: Office, suspended: UUID) -> None:
    assert "is stopped" not in _page(bea, office.request(suspended))
    Run.objects.filter(id=suspended).update(status="quarantined", reason="entry 3 is not its own")
    assert "The run of this call is stopped" in _page(bea, office.request(suspended))


def test_letters_that_pass_for_others_are_named_beside_the_value(
    bea: Client, office: Office
) -> None:
    office.approve(office.start())
    run = office.start(args={"username": "newhire", "security_level": 3, "note": "p\u0430ypal"})
    page = bea.get(f"/a/{office.request(run).id}/").content.decode()
    arguments = page.partition('class="args"')[2].partition("</dl>")[0]
    assert "mixes Latin and Cyrillic letters" in arguments
    assert "mixes Latin and Cyrillic letters" in page.partition('id="similar"')[2]


def test_a_hostile_pair_of_arguments_is_shown_whole(bea: Client, office: Office) -> None:
    chance = random.Random(1)
    notes = [" ".join(chance.choice("ab") for _ in range(2_000)) for _ in range(2)]
    office.approve(office.start(args={"username": "newhire", "note": notes[0]}))
    run = office.start(args={"username": "newhire", "note": notes[1]})
    page = bea.get(f"/a/{office.request(run).id}/").content.decode()
    assert "Shown whole: comparing the words would take too long." in page
    assert f"<ins>{notes[1]}</ins>" in page
