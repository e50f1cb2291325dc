"""The read side: who sees what waits, in which order, in pieces, and at which cost."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from approvals.errors import NotFound
from approvals.models import Request
from approvals.permissions import access, principals
from approvals.queries import inbox
from approvals.queries import requests as queries
from approvals.queries.inbox import View
from runtime.errors import InvalidInput
from runtime.models import Run
from runtime.ports.access import Actor
from tests.support import seeds

pytestmark = pytest.mark.django_db


def test_the_inbox_lists_decidable_requests_by_deadline(ada: Actor, bea: Actor) -> None:
    late = seeds.pending(requester="ada", expires_at=seeds.moment(900))
    soon = seeds.pending(requester="cyril", expires_at=seeds.moment(600))
    never = seeds.pending(requester="cyril")
    seeds.decide(seeds.pending(requester="cyril"), bea)
    doubt = seeds.in_doubt(requester="cyril")

    principal = principals.principal_of(bea)
    mine = inbox.page(principal, view=View.MINE)
    assert [item.id for item in mine.items] == [soon.id, late.id, never.id]
    assert mine.items[0].sentence == soon.sentence
    assert [item.id for item in inbox.in_doubt(principal)] == [doubt.id]
    assert inbox.counts(principal) == inbox.Counts(mine=4, in_doubt=1, others=0)
    assert mine.next is None
    ids = [None, soon.id, late.id, never.id, None]
    for number, item in enumerate(mine.items):
        assert inbox.previous_and_next(principal, item) == (ids[number], ids[number + 2])

    own = inbox.page(principals.principal_of(ada), view=View.MINE)
    assert [item.id for item in own.items] == [soon.id, never.id]
    assert inbox.counts(principals.principal_of(ada)).others == 1


def test_an_inbox_without_rights_is_empty_but_counts(cyril: Actor, admin: Actor) -> None:
    seeds.pending(requester="ada")
    stranger = Actor(person="stranger")
    for actor, others in ((cyril, 0), (admin, 1), (stranger, 0)):
        principal = principals.principal_of(actor)
        assert inbox.page(principal, view=View.MINE).items == ()
        assert inbox.counts(principal) == inbox.Counts(mine=0, in_doubt=0, others=others)


def test_an_approval_of_others_does_not_exist(ada: Actor, bea: Actor, cyril: Actor) -> None:
    request = seeds.pending(requester="ada")
    assert queries.approval(request.id, actor=bea).denial is None
    own = queries.approval(request.id, actor=ada).denial
    assert own is not None
    assert own.code == "requester"
    for unreadable in (request.id, uuid4()):
        with pytest.raises(NotFound):
            queries.approval(unreadable, actor=cyril)
    assert queries.approvals(cyril).items == ()


def test_postgres_refuses_a_risk_that_does_not_exist() -> None:
    request = seeds.pending()
    with pytest.raises(IntegrityError, match="request_risk"):
        Request.objects.filter(pk=request.pk).update(risk="nothing")


def test_a_risk_that_does_not_exist_hides_no_request(
    ada: Actor, bea: Actor, cyril: Actor, admin: Actor
) -> None:
    """The owner of the table can drop the constraint and write one."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE approvals_request DROP CONSTRAINT request_risk")
    request = seeds.pending(requester="ada")
    Request.objects.filter(pk=request.pk).update(risk="nothing")

    found = {
        actor.person: {
            view
            for view in (View.MINE, View.OTHERS)
            for item in inbox.page(principals.principal_of(actor), view=view).items
            if item.tampered
        }
        for actor in (ada, bea, cyril, admin)
    }
    assert found == {
        "ada": {View.OTHERS},
        "bea": {View.MINE},
        "cyril": set(),
        "admin": {View.OTHERS},
    }
    assert [item.id for item in queries.approvals(bea).items] == [request.id]
    assert Run.objects.filter(access.Access().readable_runs(bea)).exists()
    assert not Run.objects.filter(access.Access().readable_runs(cyril)).exists()
    client = Client()
    client.force_login(User.objects.get(username="bea"))
    for path in ("/inbox/", f"/a/{request.id}/"):
        assert "Tampered with" in client.get(path).content.decode()


def test_pieces_of_a_list_make_the_whole_even_with_equal_times(bea: Actor) -> None:
    of = seeds.run()
    requests = seeds.opened(*(seeds.snapshot(of) for _ in range(7)))
    Request.objects.filter(pk__in=[one.pk for one in requests[:5]]).update(
        created_at=requests[0].created_at
    )
    page = queries.approvals(bea, limit=3)
    seen = [item.id for item in page.items]
    while page.next is not None:
        page = queries.approvals(bea, limit=3, cursor=page.next)
        seen += [item.id for item in page.items]
    assert len(seen) == 7
    assert set(seen) == {one.id for one in requests}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("limit", value) for value in (0, 201)),
        *(("cursor", text) for text in ("", "x", "é", "fHw", "MjAyNi0xMS0yMXxub25l", "a" * 5_000)),
        ("status", "maybe"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_by_name(bea: Actor, field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        queries.approvals(bea, **{field: value})
    assert caught.value.field == field
    assert queries.approvals(bea, limit=200).items == ()


@pytest.mark.parametrize("rows", [1, 40])
def test_reading_takes_the_same_queries_for_any_number_of_rows(
    bea: Actor, rows: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    of = seeds.run()
    requests = seeds.opened(*(seeds.snapshot(of) for _ in range(rows)))
    with django_assert_num_queries(1):  # besides that of rights, which takes no ORM
        queries.approvals(bea)
    with django_assert_num_queries(1):
        queries.approval(requests[0].id, actor=bea)
