"""The inbox costs the same beside any number of pending requests: its lists, its numbers, Previous and Next."""

from functools import partial
from itertools import product
from typing import Any

import pytest
from django.db import connection

from approvals.models import Approval
from approvals.reads import inbox, pending_ages
from approvals.reads.inbox import View
from approvals.reads.orders import Grouping, Order, Sort
from approvals.rights.principals import Principal, find_principal
from approvals.signed import rows
from runtime.ports.access import Actor
from tests.support import seeds
from tests.support.costs import blocks_of_approvals

pytestmark = pytest.mark.django_db

READERS = ("bea", "cyril", "ada")  # Cyril decides nothing, Ada started a few of the runs
SEARCHES = ["", "claimed:me", "handed:me", "kind:question", "tool:rare", "risk:low", "nowhere"]


def seeded(count: int) -> None:
    """Add pending requests, one due each second; of the first, one of a thousand is of a run of Ada's."""
    names = {*rows.list_columns(Approval)} - {"id", "gate", "expires_at", "created_at", "requester"}
    names -= {"origin", "excluded"}
    same = ", ".join(sorted(names))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO approvals_approval (id, gate, expires_at, created_at, requester, origin, excluded,"
            f" {same}) SELECT gen_random_uuid(), gen_random_uuid(), now() + n * interval '1 second',"
            " now() - n * interval '3 seconds', who, jsonb_build_array(who), jsonb_build_array(who),"
            f" {same} FROM (SELECT * FROM approvals_approval LIMIT 1) AS one,"
            " generate_series((SELECT count(*) FROM approvals_approval), %s) AS n,"
            " LATERAL (SELECT CASE WHEN n %% 1000 = 0 AND n <= 8000 THEN 'ada' ELSE 'eva' END AS who) AS by",
            [count],
        )
        cursor.execute("ANALYZE approvals_approval")


def closed(count: int) -> None:
    """Add closed requests of Ada's and Cyril's in turn."""
    names = {*rows.list_columns(Approval)} - {"id", "gate", "requester", "status"}
    same = ", ".join(sorted(names - {"decided_at", "reason"}))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO approvals_approval (id, gate, requester, status, decided_at, reason, {same})"
            " SELECT gen_random_uuid(), gen_random_uuid(), (ARRAY['ada', 'cyril'])[n %% 2 + 1], 'cancelled', now(),"
            f" '', {same} FROM (SELECT * FROM approvals_approval LIMIT 1) AS one,"
            " generate_series(1, %s) AS n",
            [count],
        )
        cursor.execute("ANALYZE approvals_approval")


def costs(who: str, principal: Principal | None, item: Any) -> dict[str, int]:
    """Return the blocks of the numbers, and of each order of the lists."""
    views = [(view, q) for view, q in product(View, SEARCHES)]
    found = {f"{who} numbers": blocks_of_approvals(lambda: inbox.count_requests(principal, views))}
    found[f"{who} at high risk"] = blocks_of_approvals(
        lambda: inbox.read_important_and_doubts(principal, doubts=True)
    )
    for sort, group in product(Sort, Grouping):
        order = Order(sort=sort, group=group)
        for view in View:
            key = f"{who} {view} {sort} {group}"
            found[key] = blocks_of_approvals(
                partial(inbox.read_page, principal, view=view, order=order)
            )
        around = blocks_of_approvals(
            partial(inbox.find_previous_and_next, principal, item, order=order)
        )
        found[f"{who} around {sort} {group}"] = around
    return found


@pytest.mark.slow
def test_the_inbox_costs_the_same_beside_more_requests(
    bea: Actor, cyril: Actor, ada: Actor
) -> None:
    with connection.cursor() as cursor:
        # Dead rows that other tests left are read too.
        cursor.execute("TRUNCATE approvals_approval CASCADE")
    seeds.pending(requester="eva", risk="low")
    (approval,) = inbox.read_page(find_principal(bea), view=View.MINE).items
    made = list[dict[str, int]]()
    for add in (partial(seeded, 8_000), partial(seeded, 40_000), partial(closed, 8_000)):
        add()
        made.append({"ages": blocks_of_approvals(pending_ages.count_pending)})
        for who in READERS:
            made[-1] |= costs(who, find_principal(Actor(person=who)), approval)
    few, *more = made
    for many in more:
        grown = {key: (few[key], cost) for key, cost in many.items() if cost > 1.5 * few[key] + 20}
        assert grown == {}
        assert max(many.values()) < 8 * pending_ages.WINDOW
    ages = pending_ages.count_pending()
    assert [one.number for one in ages.ages][1:] == [pending_ages.WINDOW] * 2 + [0]


def test_numbers_of_a_long_list_say_that_it_was_not_read_to_its_end(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_ages, "WINDOW", 3)
    soon, *_ = [
        seeds.pending(requester="eva", risk=risk, expires_at=seeds.moment(60 * number))
        for number, risk in enumerate(["high", "low", "high", "low"], 1)
    ]
    mine = [(View.MINE, q) for q in ("risk:low", "claimed:me", "nowhere", "kind:none")]
    found = inbox.count_requests(find_principal(bea), mine)
    assert (found.mine, found.by_search) == (4, ("1+", "0", "0+", None))
    by_risk = Order(sort=Sort.RISK, group=Grouping.RISK)
    page = inbox.read_page(find_principal(bea), view=View.MINE, order=by_risk)
    assert [approval.risk for approval in page.items] == ["high", "high", "low"]
    assert page.items[0].id == soon.id
    monkeypatch.setattr(pending_ages, "WINDOW", 5)
    assert inbox.count_requests(find_principal(bea), mine).by_search == ("2", "0", "0", None)
