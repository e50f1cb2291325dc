"""The inbox and where a person starts."""

from uuid import UUID

from django.test import Client
from pytest_django import DjangoAssertNumQueries

from tests.desk.office import Office


def test_a_reviewer_starts_in_the_inbox(bea: Client) -> None:
    assert bea.get("/")["Location"] == "/inbox/"


def test_whoever_decides_nothing_starts_with_the_runs(cyril: Client, admin: Client) -> None:
    assert cyril.get("/")["Location"] == "/runs/"
    assert admin.get("/")["Location"] == "/runs/"


def test_each_pending_action_is_a_sentence_with_risk_path_and_requester(
    bea: Client, suspended: UUID, office: Office
) -> None:
    page = bea.get("/inbox/").content.decode()
    assert "1 action waits for your decision" in page
    assert "Set the privileges of newhire to 3" in page
    assert "Medium risk" in page
    assert "<bdi>hr_onboarding</bdi>" in page
    assert "run started by <bdi>ada</bdi>" in page
    assert f"/a/{office.request(suspended).id}/" in page


def test_an_empty_inbox_says_why_and_what_next(bea: Client) -> None:
    page = bea.get("/inbox/").content.decode()
    assert "Nothing needs you" in page
    assert "its question appears here" in page
    assert "See the runs" in page


def test_the_requester_hears_that_others_must_decide(ada: Client, suspended: UUID) -> None:
    page = ada.get("/inbox/").content.decode()
    assert "Nothing needs you" in page
    assert "1 action waits for other people" in page
    assert "Set the privileges" not in page


def test_somebody_without_rights_sees_nothing_of_it(cyril: Client, suspended: UUID) -> None:
    page = cyril.get("/inbox/").content.decode()
    assert "Set the privileges" not in page
    assert "other people" not in page


def test_gates_in_doubt_are_listed_for_those_who_may_see_them(
    bea: Client, cyril: Client, office: Office
) -> None:
    run = office.in_doubt()
    assert "In doubt" in (page := bea.get("/inbox/").content.decode())
    assert f"/a/{office.doubt(run).id}/" in page
    assert "Nothing needs you" not in page
    assert "<title>Inbox (1)" in page
    assert "In doubt" not in cyril.get("/inbox/").content.decode()


def test_a_cursor_that_is_none_is_not_found(bea: Client) -> None:
    assert bea.get("/inbox/?cursor=nonsense").status_code == 404


def test_a_longer_inbox_takes_no_more_queries(
    bea: Client, office: Office, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(4):
        office.start()
    with django_assert_max_num_queries(11):
        bea.get("/inbox/")
