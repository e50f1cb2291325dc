"""The read side: who sees what waits, in which order, in pieces, and at which cost."""

from uuid import uuid4

import pytest
from pytest_django import DjangoAssertNumQueries

from approvals import actions, queries
from approvals.errors import Invalid, NotFound
from approvals.models import Request
from runtime.core.decisions import Risk
from runtime.ports import Actor
from tests.approvals import seeds

pytestmark = pytest.mark.django_db


def approve(request: Request, actor: Actor) -> None:
    actions.decide(
        request=request.id,
        verdict="approve",
        digest=request.request_digest,
        reason="",
        actor=actor,
    )


def test_the_inbox_has_what_one_may_decide_oldest_first(ada: Actor, bea: Actor) -> None:
    first, second = seeds.pending(requester="ada"), seeds.pending(requester="cyril")
    approve(seeds.pending(requester="cyril"), bea)

    inbox = queries.inbox(bea)
    assert [item.id for item in inbox.items] == [first.id, second.id]
    assert [item.sentence for item in inbox.items] == [first.sentence, second.sentence]
    assert (inbox.for_you, inbox.for_others, inbox.next) == (2, 0, None)

    own = queries.inbox(ada)
    assert [item.id for item in own.items] == [second.id]
    assert (own.for_you, own.for_others) == (1, 1)


def test_an_inbox_of_somebody_who_decides_nothing_is_empty_but_counts(
    cyril: Actor, admin: Actor
) -> None:
    seeds.pending(requester="ada")
    assert queries.inbox(cyril) == queries.Inbox(items=(), next=None, for_you=0, for_others=0)
    assert queries.inbox(admin) == queries.Inbox(items=(), next=None, for_you=0, for_others=1)
    nobody = Actor(person="nobody")
    assert queries.inbox(nobody) == queries.Inbox(items=(), next=None, for_you=0, for_others=0)


def test_an_approval_is_complete_and_says_what_its_reader_may_do(ada: Actor, bea: Actor) -> None:
    request = seeds.pending(requester="ada")
    seen = queries.approval(request.id, actor=bea)
    assert (seen.args, seen.schema, seen.path) == (seeds.ARGS, seeds.SCHEMA, seeds.PATH)
    assert (seen.digest, seen.status, seen.refusal) == (request.request_digest, "pending", None)

    own = queries.approval(request.id, actor=ada).refusal
    assert own is not None
    assert own.code == "requester"


def test_an_approval_of_others_does_not_exist(cyril: Actor) -> None:
    request = seeds.pending(requester="ada")
    for unreadable in (request.id, uuid4()):
        with pytest.raises(NotFound):
            queries.approval(unreadable, actor=cyril)
    assert queries.approvals(cyril).items == ()


def test_a_list_can_be_cut_by_status_and_run(bea: Actor) -> None:
    of = seeds.run()
    one, two = seeds.opened(seeds.picture(of), seeds.picture(of, risk=Risk.LOW))
    other = seeds.pending()
    approve(one, bea)

    def ids(page: queries.Page) -> list[object]:
        return [item.id for item in page.items]

    assert ids(queries.approvals(bea)) == [one.id, two.id, other.id]
    assert ids(queries.approvals(bea, status="pending")) == [two.id, other.id]
    assert ids(queries.approvals(bea, run=of)) == [one.id, two.id]
    assert ids(queries.approvals(bea, status="approved", run=of)) == [one.id]
    [decided] = queries.approvals(bea, status="approved").items
    assert (decided.decided_by, decided.reason) == ("bea", "")


def test_pieces_of_a_list_make_the_whole_even_with_equal_times(bea: Actor) -> None:
    of = seeds.run()
    requests = seeds.opened(*(seeds.picture(of) for _ in range(7)))
    Request.objects.filter(pk__in=[one.pk for one in requests[:5]]).update(
        created_at=requests[0].created_at
    )
    seen, cursor = [], None
    while True:
        page = queries.approvals(bea, limit=3, cursor=cursor)
        seen += [item.id for item in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert len(seen) == 7
    assert set(seen) == {one.id for one in requests}


@pytest.mark.parametrize("limit", [0, -1, 201])
def test_a_limit_is_from_one_to_two_hundred(bea: Actor, limit: int) -> None:
    for ask in (queries.approvals, queries.inbox):
        with pytest.raises(Invalid) as caught:
            ask(bea, limit=limit)
        assert caught.value.field == "limit"
    assert queries.approvals(bea, limit=200).items == ()


@pytest.mark.parametrize("cursor", ["", "x", "é", "fHw", "MjAyNi0xMS0yMXxub25l", "a" * 5_000])
def test_a_cursor_that_is_none_is_refused_by_name(bea: Actor, cursor: str) -> None:
    with pytest.raises(Invalid) as caught:
        queries.approvals(bea, cursor=cursor)
    assert caught.value.field == "cursor"


def test_an_unknown_status_is_refused_by_name(bea: Actor) -> None:
    with pytest.raises(Invalid) as caught:
        queries.approvals(bea, status="maybe")
    assert caught.value.field == "status"


@pytest.mark.parametrize("rows", [1, 40])
def test_reading_costs_the_same_whatever_the_number_of_rows(
    bea: Actor, rows: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    of = seeds.run()
    requests = seeds.opened(*(seeds.picture(of) for _ in range(rows)))
    with django_assert_num_queries(3):  # standing, rows, counts
        queries.inbox(bea)
    with django_assert_num_queries(2):
        queries.approvals(bea)
    with django_assert_num_queries(2):
        queries.approval(requests[0].id, actor=bea)
